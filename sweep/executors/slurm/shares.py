"""Divides runs among SLURM jobs that each train many runs (sweep.pack), and removes runs from such jobs.

A run belongs to the array's task that its job.json names. The job reads that file before it begins the run and while it
trains it. So the launcher removes a run from a job by a change of the file, without a message to the job, which could
be lost while the job waits or is queued again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import write_state
from sweep.executors.base import Estimate
from sweep.executors.slurm.batch import find_batch_task, read_batch
from sweep.settings.slurm_launcher import parse_slurm_options

OPEN = (run_directory.PENDING, run_directory.RUNNING, run_directory.PREEMPTED)
"""The statuses of runs that their job computes or will compute."""
KEEPING = (*OPEN, run_directory.CANCELLED)
"""The statuses of runs that their job may still compute: SLURM may have ended the job and queued it again."""


def share_out(tasks: Sequence[RunTask], estimate: Estimate | None = None) -> list[list[RunTask]]:
    """Divide runs with equal requests among at most `hydra.launcher.allocations` jobs of similar duration.

    Longest run first, each run goes to the job with the shortest total so far (Graham, 1969); within a job, runs keep
    the order of `tasks`. A run without an estimate counts as long as the longest run with one.
    """
    seconds = [estimate(task) if estimate else None for task in tasks]
    longest = max((each for each in seconds if each is not None), default=1.0)
    lengths = [longest if each is None else each for each in seconds]
    allocations = parse_slurm_options(tasks[0].launcher).allocations
    shares: list[list[int]] = [[] for _ in range(min(allocations, len(tasks)))]
    loads = [(0.0, 0, index) for index in range(len(shares))]
    for place in sorted(range(len(tasks)), key=lambda place: -lengths[place]):
        load, count, index = min(loads)
        shares[index].append(place)
        loads[index] = (load + lengths[place], count + 1, index)
    return [[tasks[place] for place in sorted(share)] for share in shares]


def belongs_to(run: Run, batch: Path, index: int) -> bool:
    """Tell whether this task of a batch still has to compute a run."""
    return find_batch_task(run) == (batch, index)


def explain_removal(run: Run) -> str:
    """Return why a run no longer belongs to its job."""
    job = files.read_json(run.path(run_directory.JOB)) or {}
    return str(job.get("out") or "submitted anew, or its files are gone")


def find_in_shared_jobs(asked: Sequence[Run]) -> list[Run]:
    """Return those runs whose jobs also have runs that are not in `asked`, so that these jobs must not be cancelled."""
    places: dict[tuple[Path, int], list[Run]] = {}
    for run in asked:
        if (place := find_batch_task(run)) is not None:
            places.setdefault(place, []).append(run)
    batches = {path: read_batch(path) for path, _ in places}
    shared: list[Run] = []
    for (path, index), mine in places.items():
        batch, directories = batches[path], {run.directory for run in mine}
        if batch is None or not batch.packed or index >= len(batch.tasks):
            continue
        others = (Run(path.parent.parent / run_directory.RUNS / name) for name in batch.tasks[index])
        left = (other for other in others if other.directory not in directories and other.status() in KEEPING)
        if any(belongs_to(other, path, index) for other in left):
            shared += mine
    return shared


def remove_from_jobs(runs: Collection[Run], reason: str, within_s: float) -> None:
    """Remove runs from their jobs, which end them if they are in training; wait at most `within_s` seconds for that."""
    for run in runs:
        job = files.read_json(run.path(run_directory.JOB)) or {}
        files.write_json(run.path(run_directory.JOB), {**job, "id": None, "batch": None, "out": reason})
        if run.status() in (run_directory.PENDING, run_directory.PREEMPTED):  # no job will write its state
            write_state(run, status=run_directory.CANCELLED, reason=reason)
    deadline = time.monotonic() + within_s
    left = list(runs)
    while (left := [run for run in left if run.status() == run_directory.RUNNING]) and time.monotonic() < deadline:
        time.sleep(0.2)
