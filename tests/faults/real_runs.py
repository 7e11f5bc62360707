"""Looks at runs whose real ranks train: which processes they have, and whether any is left."""

from __future__ import annotations

from pathlib import Path

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.system.processes import find_processes
from tests.conftest import eventually

SWEEP = "hydra.sweep.dir=sweep"


def find_run(tmp_path: Path, part: str) -> Run | None:
    return next((run for run in runs_of(tmp_path / "sweep") if part in run.name), None)


def wait_for_training(tmp_path: Path, part: str) -> Run:
    """Return the run whose name has `part` in it, once its ranks have written a first step."""

    def ready() -> Run | None:
        run = find_run(tmp_path, part)
        return run if run is not None and files.last_row(run.path(run_directory.STEPS)) else None

    run = eventually(ready, 240)
    assert isinstance(run, Run)
    return run


def list_ranks(run: Run) -> list[int]:
    """Return the processes of the run's latest attempt that are Python, not mpirun."""
    attempt = run.attempt(len(run.state()["attempts"])).absolute()
    return [
        pid
        for pid in find_processes(attempt)
        if b"trainers" in Path(f"/proc/{pid}/cmdline").read_bytes()[-200:]
        and b"mpirun" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    ]


def has_left_nothing(run: Run) -> bool:
    return not any(find_processes(run.attempt(number).absolute()) for number in (1, 2))
