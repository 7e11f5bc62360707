"""A run that was stopped or killed and resumed equals one that never was, bit for bit (docs/guide/checkpoints.md)."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.files import keep_rows
from gradsweep.run_directory import Run, runs_of
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory import run_identity, run_layout
from sweep.settings.mpi import MpiSettings, choose_transport
from tests.conftest import PLAYED, ROOT, Program, eventually
from tests.faults.real_runs import list_ranks
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers.checkpoint.state import describe_config
from trainers.config.run_config import parse
from trainers.rules.resolve import resolve

PROGRAM = "tests.trainers.ranks.checkpoint"
GRID = ("-m", "hydra.sweep.dir=sweep", "experiment=quick", "epochs=80", "compressor=topk", "memory=residual")


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("workers", "functions"),
    [(2, "same + soon + seldom + torn + moments + kept + shared_once + full_disk + refused + different"), (3, "same")],
)
def test_a_run_goes_on_as_if_nothing_had_happened(workers: int, functions: str) -> None:
    """Whatever it is made of and whenever it ends; what is saved when, what is kept, and what is refused."""
    run_ranks(workers, *functions.split(), module=PROGRAM)


def losses(run: Run) -> list[tuple[str, ...]]:
    with run.path(run_directory.STEPS).open() as file:
        return [(row["step"], row["loss"], row["accuracy"], row["memory_norm"]) for row in csv.DictReader(file)]


def steps_of(run: Run) -> int:
    row = files.last_row(run.path(run_directory.STEPS))
    return int(row["step"]) if row else 0


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_run_goes_on_after_a_signal_and_after_a_kill(tmp_path: Path, digits: Path) -> None:
    """SIGUSR1 to mpirun, which passes it on; then a rank is killed between two checkpoints."""
    mpi = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))

    def attempt(name: str, **settings: Any) -> MpirunAttempt:
        given = compose_config(
            epochs=40, compressor="topk", memory="residual", data={"root": str(digits)}, checkpoint=settings
        )
        config = {**resolve(given), "mpi": {}, "sweep": {}}
        (run,) = run_layout.lay_out(tmp_path / name, [run_identity.Point(config, {})])
        return MpirunAttempt(RunTask(str(run.directory), 2, 1, mpi.resolve_command(), mpi.variables), [0, 1])

    first = attempt("parts")
    run = first.run
    eventually(lambda: steps_of(run))
    first.preempt()
    assert eventually(first.poll, 60) == run_directory.PREEMPTED
    saved = steps_of(run)
    reason = f"SIGUSR1: saved at step {saved}; a resume goes on from there"
    assert first.reason == run.state()["reason"] == reason
    assert first.process.returncode == 0

    second = attempt("parts", every_steps=40)
    eventually(lambda: steps_of(run) > saved + 80)
    os.kill(list_ranks(run)[-1], signal.SIGKILL)
    assert eventually(second.poll, 60) == run_directory.FAILED

    third = attempt("parts")
    assert eventually(third.poll, 120) == run_directory.DONE, third.reason
    assert [one["status"] for one in run.state()["attempts"]] == [
        run_directory.PREEMPTED,
        run_directory.FAILED,
        run_directory.DONE,
    ]
    assert not run.path(run_directory.CHECKPOINT).exists()
    result = run.result()
    assert result is not None
    after_signal, after_kill = result["resumed_after"]
    assert after_signal == saved and after_kill > saved and after_kill % 40 == 0
    assert result["warmup_steps"] == min(10, saved) + min(10, after_kill - saved) + 10

    whole = attempt("whole", every_minutes=None)
    assert eventually(whole.poll, 120) == run_directory.DONE
    assert whole.run.signature == run.signature, "checkpoints are no part of what a run computes"
    assert losses(whole.run) == losses(run) and len(losses(run)) == 480


@pytest.mark.thorough
@pytest.mark.mpi
def test_the_launcher_passes_the_signal_on_and_begins_nothing_new(
    start: Callable[..., Program], tmp_path: Path, digits: Path
) -> None:
    grid = (*GRID, f"data.root={digits}", "workers=1")
    program = start(*grid, "seed=1,2", "sweep.max_parallel=1", without=PLAYED)
    eventually(lambda: any(map(steps_of, runs_of(tmp_path / "sweep"))))
    program.process.send_signal(signal.SIGUSR1)
    code, out, err = program.end(120)
    first, second = runs_of(tmp_path / "sweep")
    assert code == 1
    assert (first.status(), second.status()) == (run_directory.PREEMPTED, run_directory.CANCELLED)
    assert f"saved at step {steps_of(first)}" in out and "SIGUSR1 came before its turn" in out
    assert not second.attempt_numbers()
    again = start(*grid, "seed=1", "sweep.resume=sweep", without=PLAYED)
    code, out, err = again.end(200)
    assert (code, first.status()) == (0, run_directory.DONE), out + err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint": {"keep": 0}}, "checkpoint.keep=0: valid is an integer from 1 up"),
        ({"checkpoint": {"every_steps": 0}}, "checkpoint.every_steps=0: valid is an integer from 1 up or null"),
        (
            {"checkpoint": {"every_minutes": 0}},
            "checkpoint.every_minutes=0: valid is a finite number above 0.0 or null",
        ),
        ({"checkpoint": {"evry": 1}}, "checkpoint.evry=1: valid is one of the keys every_minutes"),
        ({"check_every": -1}, "check_every=-1: valid is an integer from 0 up"),
    ],
)
def test_settings_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(compose_config(**changes))


def test_a_checkpoint_of_an_earlier_version_has_no_network() -> None:
    """So it fits a run with network=none, and no other."""
    assert not [key for key in describe_config(parse(compose_config())) if key.startswith("network")]
    other = describe_config(parse(compose_config(network="ethernet_1g")))
    assert other["network"] == "ethernet_1g" and other["network.latency"] == "200us"


def test_rows_are_cut(tmp_path: Path) -> None:
    path = tmp_path / run_directory.STEPS
    path.write_text("a,b\n1,2\n3,4\n5,")
    with pytest.raises(ValueError, match=r"steps\.csv has 2 of 3 rows"):
        keep_rows(path, 3)
    assert path.read_text() == "a,b\n1,2\n3,4\n5,"
    keep_rows(path, 2)
    assert path.read_text() == "a,b\n1,2\n3,4\n"
    keep_rows(path, 0)
    assert path.read_text() == "a,b\n"
    keep_rows(tmp_path / "none", 0)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="none has 0 of 1 rows"):
        keep_rows(tmp_path / "none", 1)
