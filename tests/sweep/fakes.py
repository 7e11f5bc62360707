"""Sweeps whose ranks are a shell script: what is around them is real, and they cost next to nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import csv_columns, files, run_directory
from gradsweep.run_directory import Run
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import read_lock_owner
from sweep.directory import restore_runs, run_layout
from sweep.directory.run_identity import Point
from sweep.directory.sweep_directory import Sweep
from sweep.launch import detach
from sweep.planning.load_point import load_point
from sweep.settings.launcher import parse_options
from sweep.settings.local_launcher import LocalOptions
from sweep.settings.mpi import MpiSettings
from sweep.settings.race import WITHOUT, RaceSettings
from sweep.settings.resolved_point import ResolvedPoint
from sweep.settings.sweep import SweepSettings
from tests.conftest import eventually

SUCCEED = """echo '{"status": "done", "accuracy": 0.5, "epochs": 1}' > "$4/result.json" """
"""Of a rank that is done; $4 is the directory of its run."""
SLEEP = "sleep 1000 & sleep 1000"


def config(seed: int, script: str = SUCCEED, **sweep: Any) -> dict[str, Any]:
    """A config with all that a launcher reads."""
    return {
        "workers": 1,
        "threads_per_worker": 1,
        "seed": seed,
        "epochs": 4,
        "max_steps": None,
        "exchange": {"name": "allreduce"},
        "compressor": {"name": "none"},
        "dataset": {"name": "digits"},
        "sweep": sweep,
        "mpi": {"command": ["sh", "-c", script, "{workers}"], "environment": {}},
        "launcher": {"cluster": "local"},
    }


def resolved(
    config: dict[str, Any], settings: SweepSettings | None = None, race: RaceSettings = WITHOUT
) -> ResolvedPoint:
    """A point with as much of a config as a test needs, without the checks."""
    options = parse_options(config["launcher"]) if "launcher" in config else LocalOptions()
    settings = settings or SweepSettings()
    return ResolvedPoint(config, {}, settings=settings, mpi=MpiSettings(), race=race, options=options)


def load_points(runs: Sequence[Run]) -> dict[Run, ResolvedPoint]:
    return {run: load_point(run) for run in runs}


def without_data_and_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands in this process prepare no digits and write no report."""
    monkeypatch.setattr("sweep.commands.resume.prepare_data", lambda configs: None)
    monkeypatch.setattr("sweep.launch.execute.prepare_data", lambda configs: None)
    monkeypatch.setattr("sweep.commands.resume.conclude", lambda session: 0)


def lay_out(directory: Path, scripts: Sequence[str], **sweep: Any) -> list[Run]:
    """A sweep with a run `seed=I` for each script, closed again; returns the runs in the order of scripts."""
    opened = Sweep(directory, fresh=False)
    try:
        points = [Point(config(i, script, **sweep), {"seed": str(i)}) for i, script in enumerate(scripts)]
        files.write_text(
            directory / run_directory.SWEEP, yaml.safe_dump({"format": run_directory.FORMAT, "swept": ["seed"]})
        )
        places = run_layout.locate_runs(directory, points)
        planned_runs.note(directory, restore_runs.list_records(places))
        return run_layout.create_runs(places)
    finally:
        opened.close()


def write_run(
    sweep: Path, name: str, state: Mapping[str, Any], result: Mapping[str, Any] | None = None, steps: int = 0
) -> Run:
    """A run without a launcher, as files."""
    run = Run(sweep / run_directory.RUNS / name)
    run.directory.mkdir(parents=True)
    run.path(run_directory.CONFIG).write_text("workers: 2\nepochs: 10\nmax_steps: null\nloss:\n  epochs: 3\n")
    run.path(run_directory.STATE).write_text(json.dumps(state))
    if result is not None:
        run.path(run_directory.RESULT).write_text(json.dumps(result))
    if steps:
        header, per_epoch = ",".join(csv_columns.STEP_COLUMNS), 10
        rows = [f"{i},{1 + (i - 1) // per_epoch},{i / 20}" for i in range(1, steps + 1)]
        run.path(run_directory.STEPS).write_text("\n".join([header, *rows]) + "\n77,9")  # the last one is torn
        if steps >= per_epoch:
            files.append_rows(
                run.path(run_directory.EPOCHS),
                csv_columns.EPOCH_COLUMNS,
                [{"epoch": 1, "step": per_epoch, "test_accuracy": 0.75}],
            )
    return run


def read_log(run: Run, name: str = run_directory.STDOUT) -> str:
    """What the latest attempt of a run has printed."""
    return (run.attempt(run.attempt_numbers()[-1]) / name).read_text(encoding="utf-8", errors="replace")


def end_launcher(sweep: Path) -> None:
    """End the process that runs a sweep, where there is one besides this; what it did is shown if the test fails."""
    for path in [
        sweep / detach.LOG,
        sweep / run_directory.EVENTS,
        *sweep.glob(f"{run_directory.RUNS}/*/{run_directory.STATE}"),
    ]:
        print(path.relative_to(sweep), path.read_text() if path.exists() else "is missing", sep="\n")
    print(f"cores of this process: {os.sched_getaffinity(0)}")
    if (by := read_lock_owner(sweep)) is not None and by["pid"] != os.getpid():
        print(f"cores of the launcher: {os.sched_getaffinity(by['pid'])}")
        os.kill(by["pid"], signal.SIGTERM)
        eventually(lambda: read_lock_owner(sweep) is None)
