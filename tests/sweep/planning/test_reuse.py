"""Finished runs of earlier sweeps are taken over, where they are the same in all that matters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.files import read_json, write_json
from gradsweep.run_directory import Run
from sweep.directory import run_layout
from sweep.directory.run_identity import Point
from sweep.directory.run_state import write_state
from sweep.planning import reuse
from sweep.settings.slurm_launcher import SlurmOptions
from tests.sweep.fakes import resolved

ABOUT = {"packages": {"torch": "2"}, "python": "3.11", "cpu": {"model": "x"}, "gpus": [], "mpi": "Open MPI"}
LOCAL = {"cluster": "local"}
Make = Callable[..., dict[Run, dict[str, Any]]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def sweep(
        name: str, seeds: list[int], launcher: dict[str, Any] = LOCAL, transports: tuple[str, ...] = (), **changes: Any
    ) -> dict[Run, Any]:
        """Runs with their configs; the changes are what sweep.yaml says of the machine that they are started from."""
        directory = tmp_path / "output" / "2026-11-20" / name
        configs = [{"workers": 1, "seed": seed, "launcher": launcher} for seed in seeds]
        for config, transport in zip(configs, transports, strict=False):
            config["mpi"] = {"transport": transport}
        runs = run_layout.lay_out(directory, [Point(config, {"seed": str(config["seed"])}) for config in configs])
        (directory / run_directory.SWEEP).write_text(yaml.safe_dump({**ABOUT, **changes}))
        return dict(zip(runs, configs, strict=True))

    return sweep


def finish(run: Run, version: str = "v1", status: str = run_directory.DONE, attempts: int = 1, **recorded: Any) -> None:
    """Leave what a run leaves that was made in so many attempts, each on a machine that is the last one's or ours."""
    resumed = list(range(1, attempts))
    write_json(run.path(run_directory.RESULT), {"status": status, "accuracy": 0.5, "resumed_after": resumed})
    run.path(run_directory.STEPS).write_text("step\n1\n")
    for number in range(1, attempts + 1):
        run.attempt(number).mkdir()
        known = recorded if number == 1 else {}
        write_json(run.attempt(number) / run_directory.PROVENANCE, {**ABOUT, "launcher": LOCAL, "host": "h", **known})
    made = [{"number": number, "status": status, "code_version": version} for number in range(1, attempts + 1)]
    write_state(run, status=status, attempts=made)


def take(runs: dict[Run, dict[str, Any]]) -> list[Run]:
    points = {run: resolved(config) for run, config in runs.items()}
    return reuse.take_finished(next(iter(runs)).directory.parents[1], points, "v1")


def test_what_is_finished_is_taken_with_all_that_a_report_reads(make: Make) -> None:
    earlier = list(make("10-00-00", [1, 2, 3]))
    finish(earlier[0])
    write_json(earlier[0].path(run_directory.TUNED), {"overlap": True})
    finish(earlier[1], status=run_directory.DIVERGED)
    runs = make("11-00-00", [1, 2, 3, 4])
    first, second, *others = runs
    assert take(runs) == [first, second]
    assert [run.status() for run in runs] == [
        run_directory.DONE,
        run_directory.DIVERGED,
        run_directory.PENDING,
        run_directory.PENDING,
    ]
    assert first.result() == earlier[0].result() and first.path(run_directory.STEPS).read_text() == "step\n1\n"
    assert read_json(first.path(run_directory.TUNED)) == {"overlap": True}
    assert first.state()["reused_from"] == str(earlier[0].directory)
    assert first.records() == earlier[0].records() != []
    assert [path.name for path in first.directory.iterdir() if path.name.startswith(".")] == []


def test_what_was_taken_can_be_taken_again(make: Make) -> None:
    finish(next(iter(make("10-00-00", [1]))))
    runs = make("11-00-00", [1])
    assert take(runs) == list(runs)
    again = make("12-00-00", [1])
    assert take(again) == list(again)
    assert "11-00-00" in next(iter(again)).state()["reused_from"]


def test_other_code_is_not_taken(make: Make) -> None:
    finish(next(iter(make("10-00-00", [1]))), version="v0")
    assert take(make("11-00-00", [1])) == []


OTHERS = [{"packages": {"torch": "1"}}, {"python": "3.12"}, {"cpu": {"model": "y"}}, {"gpus": ["z"]}, {"mpi": "MPICH"}]


@pytest.mark.parametrize("other", OTHERS)
def test_what_another_machine_or_other_packages_have_made_is_not_taken(make: Make, other: dict[str, Any]) -> None:
    """What the run itself has recorded counts; sweep.yaml tells of the machine that it was started from."""
    finish(next(iter(make("10-00-00", [1]))), **other)
    finish(next(iter(make("10-30-00", [2], **other))))
    first, second = runs = make("11-00-00", [1, 2])
    assert take(runs) == [second] and first.status() == run_directory.PENDING


@pytest.mark.parametrize("other", OTHERS)
def test_nor_what_is_elsewhere_taken_here(make: Make, other: dict[str, Any]) -> None:
    finish(next(iter(make("10-00-00", [1]))))
    assert take(make("11-00-00", [1], **other)) == []


def test_another_transport_is_not_taken(make: Make) -> None:
    for run in [*make("10-00-00", [1]), *make("10-30-00", [2, 3], transports=("tcp", "auto"))]:
        finish(run)
    first, second, third = runs = make("11-00-00", [1, 2, 3], transports=("shm", "auto", "auto"))
    assert set(take(runs)) == {first, third} and second.status() == run_directory.PENDING


def test_all_attempts_count_that_a_run_has_gone_on_from(make: Make) -> None:
    straight, mixed, begun_anew = make("10-00-00", [1, 2, 3])
    finish(straight, attempts=2)
    finish(mixed, attempts=2, cpu={"model": "y"})
    finish(begun_anew, attempts=2, cpu={"model": "y"})
    write_json(begun_anew.path(run_directory.RESULT), {"status": run_directory.DONE, "resumed_after": []})
    first, _, third = runs = make("11-00-00", [1, 2, 3])
    assert take(runs) == [first, third]
    assert len(first.records()) == 2 and len(third.records()) == 1


def test_all_nodes_count_that_a_run_was_made_on(make: Make) -> None:
    alike, silent, mixed = make("10-00-00", [1, 2, 3])
    finish(alike, other_nodes={"n2": {"calibration": {"loop_mops": 1.0}}, "n3": {"platform": "another"}})
    finish(silent, other_nodes={"n2": None})
    finish(mixed, other_nodes={"n2": {}, "n3": {"packages": {"torch": "1"}}})
    first, second, _ = runs = make("11-00-00", [1, 2, 3])
    assert take(runs) == [first, second]


def test_a_run_that_does_not_say_where_it_was_made_is_not_taken(make: Make) -> None:
    run = next(iter(make("10-00-00", [1])))
    finish(run)
    (run.attempt(1) / run_directory.PROVENANCE).unlink()
    assert take(make("11-00-00", [1])) == []


def slurm(**options: Any) -> dict[str, Any]:
    return {"cluster": "slurm", **options}


def test_on_a_cluster_nodes_must_have_been_asked_for_alike(make: Make) -> None:
    """Which node it will be nobody knows: its CPU is not compared with that of where the command is typed."""
    gpu = slurm(partition="gpu", time=5)
    earlier = make("10-00-00", [1], gpu)
    asked = SlurmOptions.parse({"partition": "gpu", "time": 5}).describe_location()
    finish(next(iter(earlier)), cpu={"model": "of a node"}, launcher=asked)
    assert len(take(make("11-00-00", [1], slurm(partition="gpu", time=9)))) == 1
    for number, other in enumerate(
        [slurm(partition="cpu"), slurm(partition="gpu", nodelist="n7"), slurm(partition="gpu", cpus=2), LOCAL]
    ):
        assert take(make(f"09-0{number}-00", [1], other)) == [], other
    assert take(make("12-00-00", [1], gpu, packages={"torch": "3"})) == []


def test_what_this_machine_has_made_does_not_stand_for_a_node(make: Make) -> None:
    finish(next(iter(make("10-00-00", [1]))))
    assert take(make("11-00-00", [1], slurm())) == []


def test_of_several_the_latest_is_taken_and_what_is_here_stays(make: Make) -> None:
    for name in ("10-00-00", "10-30-00"):
        finish(next(iter(make(name, [1, 2]))))
    runs = make("11-00-00", [1, 2])
    first, second = runs
    finish(second)
    assert take(runs) == [first]
    assert "10-30-00" in first.state()["reused_from"] and "reused_from" not in second.state()


@pytest.mark.parametrize("name", [run_directory.STEPS, run_directory.RESULT, f"attempt-1/{run_directory.PROVENANCE}"])
def test_what_is_no_file_is_not_taken(make: Make, name: str, tmp_path: Path) -> None:
    """A stranger's link may lead to somebody's secrets, and a FIFO would be waited for."""
    (earlier,) = make("10-00-00", [1])
    finish(earlier)
    path = earlier.path(name)
    kept = tmp_path / "kept"
    path.rename(kept)
    runs = make("11-00-00", [1])
    path.symlink_to(kept)
    assert take(runs) == []
    path.unlink()
    os.mkfifo(path)
    assert take(runs) == []
    path.unlink()
    kept.rename(path)
    assert take(runs) == list(runs)
