"""The options of hydra/launcher=slurm, before anything is submitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep.errors import UsageError
from sweep.config.arguments import refuse_misread
from sweep.executors.slurm.executor import SlurmRunExecutor
from sweep.settings.launcher import parse_options
from sweep.settings.slurm_launcher import SlurmOptions
from tests.sweep.fake_slurm import FakeSlurm, Make, executor, fake, make, quick, submit

__all__ = ["executor", "fake", "make", "quick"]


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("nodes", 0, "an integer from 1 up"),
        ("nodes", "two", "an integer from 1 up"),
        ("time", 0, "an integer from 1 up"),
        ("time", True, "an integer from 1 up"),
        ("time", 1, "from 2 minutes up with hydra.launcher.signal_delay_s=15, .*"),
        ("cpus", 0, "an integer from 1 up or null"),
        ("gpus_per_node", -1, "an integer from 0 up or null"),
        ("requeues", -1, "an integer from 0 up"),
        ("signal_delay_s", 0, "an integer from 1 up or null"),
        ("signal_delay_s", 70000, "an integer from 1 to 65535, or null"),
        ("array_parallelism", 0, "an integer from 1 up or null"),
        ("time", 99999999999, "up to 527040 minutes, which is a year"),
        ("mem_gb", 0, "a number of gigabytes a node from 0.001 up, or null"),
        ("mem_gb", 0.0001, "a number of gigabytes a node from 0.001 up, or null"),
        ("mem_per_cpu", 0, "an amount such as 2G or 500M, or null"),
        ("account", 1e5, "a name, or null"),
        ("mem_per_cpu", "2 gigabytes", "an amount such as 2G or 500M, or null"),
        ("poll_s", float("nan"), "a number of seconds above 0"),
        ("exclusive", "mine", "true, false, or one of user, mcs"),
        ("exclusive", None, "true, false, or one of user, mcs"),
        ("partition", "", "a name, or null"),
        ("setup", "source me", "a list of lines of shell"),
        ("modules", ["a\nrm -r"], "a list of names for `module load`"),
        ("additional", 3, "a mapping; its keys are each a long option of sbatch.*"),
        ("array", "0-7", "not to be set: the launcher needs it itself"),
        ("job_name", "mine", "not to be set: the launcher needs it itself"),
        ("gpus-per-node", 2, "hydra.launcher.gpus_per_node instead, which says the same"),
        ("mem-per-cpu", "2G", "hydra.launcher.mem_per_cpu instead, which says the same"),
        ("cpus-per-task", 2, "hydra.launcher.cpus instead, which says the same"),
        ("Reservation", "x", "a long option of sbatch.*"),
        ("reservation", [1], "text, a number, true or false"),
    ],
)
def test_options_out_of_range_are_one_line(key: str, value: object, valid: str) -> None:
    with pytest.raises(UsageError, match=rf"^hydra\.launcher\.{key}=.*: valid is {valid}$") as error:
        parse_options({"cluster": "slurm", key: value})
    assert "\n" not in str(error.value)


def test_a_key_of_its_own_is_no_additional_option() -> None:
    """Both would reach sbatch, which takes the last."""
    with pytest.raises(UsageError, match="nodes=3: valid is hydra.launcher.nodes instead, which says the same"):
        parse_options({"cluster": "slurm", "nodes": 2, "additional": {"nodes": 3}})


@pytest.mark.parametrize(
    ("exclusive", "asked"), [(False, None), (True, "exclusive"), ("user", "exclusive=user"), ("mcs", "exclusive=mcs")]
)
def test_with_whom_nodes_are_shared(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, exclusive: bool | str, asked: str | None
) -> None:
    submit(executor, make("a", exclusive=exclusive))
    found = [line for line in fake.arrays()[0].splitlines() if line.startswith("#SBATCH --exclusive")]
    assert found == ([] if asked is None else [f"#SBATCH --{asked}"])


def test_another_launchers_options_are_named() -> None:
    given = {**dataclasses.asdict(SlurmOptions()), "cluster": "local"}
    with pytest.raises(UsageError) as error:
        parse_options(given)
    valid = "valid is slurm with hydra/launcher=slurm; to choose the other one, hydra/launcher=local"
    assert str(error.value) == f"hydra.launcher.cluster=local: {valid}"


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hydra.launcher.account=2024_08", "202408; as a text: 'hydra.launcher.account=\"2024_08\"'"),
        ("+hydra.launcher.reservation=+5", "5; as a text: 'hydra.launcher.reservation=\"+5\"'"),
        ("hydra.launcher.qos=1e3", "1000.0; as a text: 'hydra.launcher.qos=\"1e3\"'"),
        ("hydra.launcher.account=2024", None),
        ('hydra.launcher.account="2024_08"', None),
        ("hydra.launcher.time=1_440", None),
        ("hydra.launcher.account=a2024_08", None),
        ("sweep.name=2024_08", None),
        ("hydra.launcher.exclude=n1-3", None),
    ],
)
def test_a_text_that_hydra_takes_for_a_number(word: str, line: str | None) -> None:
    if line is None:
        return refuse_misread([word, "-m"])
    with pytest.raises(UsageError) as error:
        refuse_misread(["-m", word])
    assert str(error.value) == f"{word.removeprefix('+')}: without quotes it is the number {line}"


@pytest.mark.parametrize("key", ["partition", "comment"])
def test_a_line_break_does_not_reach_the_script(key: str) -> None:
    with pytest.raises(UsageError, match=r"'gpu\\nrm -r home'"):
        parse_options({"cluster": "slurm", key: "gpu\nrm -r home"})


def test_memory_is_of_a_node_or_of_a_cpu() -> None:
    with pytest.raises(UsageError, match="mem_per_cpu=2G: valid is null with hydra.launcher.mem_gb=4"):
        parse_options({"cluster": "slurm", "mem_gb": 4, "mem_per_cpu": "2G"})
    assert SlurmOptions.parse({"mem_gb": 1.5}).build_request(1, 1)["mem"] == "1536M"


def test_memory_of_a_cpu_reaches_sbatch(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    submit(executor, make("a", mem_per_cpu="500M"))
    found = [line for line in fake.arrays()[0].splitlines() if line.startswith("#SBATCH --mem")]
    assert found == ["#SBATCH --mem-per-cpu=500M"]


@pytest.mark.parametrize(("minutes", "asked", "delay"), [(60, None, 90), (4, None, 60), (2, None, 30), (5, 100, 100)])
def test_short_time_limits_leave_time_to_compute(minutes: int, asked: int | None, delay: int) -> None:
    request = SlurmOptions.parse({"time": minutes, "signal_delay_s": asked}).build_request(1, 1)
    assert request["additional_parameters"]["signal"] == f"B:USR2@{delay}"


def test_a_signal_that_may_come_as_the_job_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="time=2: valid is from 3 minutes up with hydra.launcher.signal_delay_s=90, "):
        parse_options({"cluster": "slurm", "time": 2, "signal_delay_s": 90})


def test_more_nodes_than_ranks_are_refused() -> None:
    with pytest.raises(UsageError, match="nodes=3: valid is at most the number of ranks, 2"):
        SlurmOptions.parse({"nodes": 3}).build_request(2, 1)


def test_without_slurm_it_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="^hydra/launcher=slurm: there is no sbatch on PATH; valid is .*local$"):
        SlurmRunExecutor(tmp_path)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hydra.launcher.nodes=${ceil:${wrokers},2}", "Interpolation key 'wrokers' not found"),
        ("hydra.launcher.nodes=${ceil:${workers},0}", "${ceil:2,0}: valid is two integers, the second from 1 up"),
        ("hydra.launcher.nodes=${ceil:${workers}}", "${ceil:2}: valid is two integers, the second from 1 up"),
        ("hydra.launcher.nodes=${ciel:${workers},2}", "Unsupported interpolation type ciel"),
        (
            "hydra.launcher.partition=debug,low",
            "valid is one value; with a comma it is in quotes: 'hydra.launcher.partition=\"debug,low\"'",
        ),
    ],
)
def test_an_option_that_cannot_be_resolved_is_named(
    multirun: Callable[..., tuple[int, str, str]], word: str, line: str
) -> None:
    """Hydra makes the launcher before any point, and its own errors do not say of which key they are."""
    usual = ["-m", "hydra/launcher=slurm", "sweep.dry_run=true", "workers=2", "hydra.launcher.time=${epochs}"]
    code, out, err = multirun(*usual, word)
    assert (code, out, err.strip()) == (2, "", f"{word}: {line}")
