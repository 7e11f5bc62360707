"""What a dry run says of a packed sweep is what becomes of it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gradsweep import run_directory
from sweep.attempts.run_task import RunTask
from sweep.executors.packed.executor import PackedExecutor
from sweep.executors.slurm.batch import read_batch
from sweep.executors.slurm.executor import SlurmRunExecutor
from sweep.planning import dry_run, packing_forecast
from sweep.planning.cost import SURE
from sweep.planning.estimate import Estimate
from sweep.planning.packing_forecast import Pack, forecast_packs
from sweep.planning.row import Row
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings
from tests.sweep.emulation.conftest import describe_network
from tests.sweep.fake_slurm import FakeSlurm, fake
from tests.sweep.planning.test_dry_run import config, make_points, shown

__all__ = ["fake"]
MPI = MpiSettings(["mpirun", "-n", "{workers}"], {})


def row(directory: Path, workers: int, threads: int = 1, seconds: float | None = None, **launcher: Any) -> Row:
    likely = None if seconds is None else Estimate(seconds, 1, SURE, False)
    launcher, mpi = {"cluster": "local", **launcher}, dataclasses.asdict(MPI)
    of = config(workers=workers, threads_per_worker=threads, launcher=launcher, mpi=mpi)
    return Row(1, dry_run.RUN, directory.name, of, directory, estimate=likely)


def task(of: Row) -> RunTask:
    assert of.directory is not None
    of.directory.mkdir(parents=True)
    launcher, threads = of.config["launcher"], of.config["threads_per_worker"]
    return RunTask(str(of.directory), of.config["workers"], threads, MPI.command, MPI.variables, launcher=launcher)


@pytest.mark.parametrize(
    ("runs", "options", "expected"),
    [
        ([(1, 1)] * 2, {}, [Pack(2, 2)]),
        ([(1, 1)] * 9, {}, [Pack(4, 9)]),  # of four cores
        ([(1, 1)] * 9, {"max_parallel": 3}, [Pack(3, 9)]),
        ([(2, 1), (8, 1), (1, 1)], {}, [Pack(8, 3)]),
        ([(1, 1), (1, 2), (1, 2), (1, 2)], {}, [Pack(1, 1), Pack(2, 3)]),  # threads_per_worker
        ([(3, 1)] * 5, {"share_cores": True}, [Pack(12, 5)]),
    ],
)
def test_worlds_are_as_large_as_it_says(
    runs: list[tuple[int, int]],
    options: dict[str, Any],
    expected: list[Pack],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    rows = [row(tmp_path / run_directory.RUNS / str(number), *run) for number, run in enumerate(runs)]
    assert forecast_packs(rows, SweepSettings(pack=True, **options)) == expected
    executor = PackedExecutor(tmp_path, [0, 1, 2, 3], **options)
    made: dict[int, int] = {}  # the first one of each kind, when all runs are queued

    def refused(task: RunTask, size: int, directory: Path) -> None:
        made.setdefault(task.threads_per_worker, size)
        raise OSError("as large as that, but not now")

    monkeypatch.setattr(executor, "_start_world", refused)
    executor.submit_runs([task(each) for each in rows])
    assert sorted(made.values()) == sorted(pack.ranks for pack in expected)


def test_a_world_has_one_transport(tmp_path: Path) -> None:
    rows = [row(tmp_path / run_directory.RUNS / str(number), 2) for number in range(4)]
    for number, each in enumerate(rows):
        each.config["mpi"] = {**dataclasses.asdict(MPI), "transport": ("shm", "tcp", "auto", "shm")[number]}
    assert sorted(pack.runs for pack in forecast_packs(rows, SweepSettings(pack=True))) == [1, 1, 2]


def test_allocations_have_as_many_runs_as_it_says(tmp_path: Path, fake: FakeSlurm) -> None:
    options = {"cluster": "slurm", "time": 5, "allocations": 3, "side_by_side": 2}
    lengths = [(2, 90.0), (2, 30.0), (2, 20.0), (2, 10.0), (2, None), (4, 5.0)]
    rows = [
        row(tmp_path / run_directory.RUNS / str(number), workers, seconds=seconds, **options)
        for number, (workers, seconds) in enumerate(lengths)
    ]
    found = forecast_packs(rows, SweepSettings(pack=True))
    assert found == [Pack(2, 1), Pack(2, 1), Pack(4, 3), Pack(4, 1)]
    tasks = [task(each) for each in rows]
    known = {each.directory: row.estimate for each, row in zip(tasks, rows, strict=True)}

    def estimate(task: RunTask) -> float | None:
        return None if (likely := known[task.directory]) is None else likely.seconds

    executor = SlurmRunExecutor(tmp_path, 0.05, packed=True, estimate=estimate)
    executor.submit_runs(tasks)
    batches = [read_batch(path) for path in sorted((tmp_path / "slurm").glob("batch-*.json"))]
    submitted = [len(runs) for batch in batches if batch is not None for runs in batch.tasks]
    assert submitted == [pack.runs for pack in found]


def test_it_is_said_in_a_line_and_to_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    of = [config(seed=1), config(seed=2), config(seed=2)]  # a duplicate is trained in none
    typed = [{"seed": str(each["seed"])} for each in of]
    points = make_points(of, typed, [], SweepSettings(pack=True), MPI)
    assert "packed: 1 MPI world of 2 ranks for 2 runs" in shown(points, tmp_path / "s", capsys)
    dry_run.print_json(points, tmp_path / "s")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["packed"] == [{"ranks": 2, "runs": 2}]
    points = dataclasses.replace(points, settings=SweepSettings())
    assert not any("packed" in line for line in shown(points, tmp_path / "s", capsys))
    dry_run.print_json(points, tmp_path / "s")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["packed"] is None


@pytest.mark.parametrize(
    ("networks", "line"),
    [
        (["none", "emulated"], "packed: 2 MPI worlds of 2 ranks for 1 run each"),
        (["emulated", "emulated"], "packed: 1 MPI world of 2 ranks for 2 runs"),
    ],
)
def test_an_emulated_network_has_a_world_of_its_own(
    networks: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    kinds = {"none": {"name": "none"}, "emulated": describe_network()}
    of = [{**config(seed=seed), "network": kinds[name]} for seed, name in enumerate(networks)]
    typed = [{"seed": str(each["seed"])} for each in of]
    points = make_points(of, typed, [], SweepSettings(pack=True), MPI)
    assert line in shown(points, tmp_path / "s", capsys)


def test_what_is_alike_is_said_once() -> None:
    found = [Pack(4, 3), Pack(4, 3), Pack(2, 1)]
    assert packing_forecast.describe_packs(found, "slurm") == (
        "packed: 2 allocations of 4 ranks for 3 runs each, 1 allocation of 2 ranks for 1 run"
    )
    assert packing_forecast.describe_packs(found[2:], "local") == "packed: 1 MPI world of 2 ranks for 1 run"
