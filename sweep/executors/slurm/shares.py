"""Allocations that serve many runs (sweep.pack on SLURM): which has which run, and taking a run out of one.

A run belongs to the task of the array that its job.json names, and to no other; the job looks there before it begins a
run and while it trains it. So whoever writes another job.json, or strikes the run out of it, has taken the run out of
that allocation, and no message can be lost between a launcher and a job that waits, runs or is queued again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import write_state
from sweep.executors.backlog import priority
from sweep.executors.slurm.batch import JOB, find_batch_task, read_batch
from sweep.settings.slurm_launcher import parse_slurm_options

OPEN = (run_directory.PENDING, run_directory.RUNNING, run_directory.PREEMPTED)
"""How runs stand that their job will compute, or computes."""
KEEPING = (*OPEN, run_directory.CANCELLED)
"""How runs stand that their job may still compute: SLURM may have ended it and queued it again."""


def share_out(
    tasks: Sequence[RunTask],
    estimate: Callable[[RunTask], float | None] | None = None,
    weigh: Callable[[RunTask], tuple[float, ...]] | None = None,
) -> list[list[RunTask]]:
    """Runs that ask for the same as shares of about equal length: as many as `allocations` says, none empty.

    The longest first, each to the allocation that has least (Graham, 1969). One that nobody can estimate counts as the
    longest that is known.
    """
    known = [(task, estimate(task) if estimate else None, weigh(task) if weigh else ()) for task in tasks]
    longest = max((seconds for _, seconds, _ in known if seconds is not None), default=1.0)
    allocations = parse_slurm_options(tasks[0].launcher).allocations
    shares: list[list[RunTask]] = [[] for _ in range(min(allocations, len(tasks)))]
    loads = [(0.0, 0, index) for index in range(len(shares))]
    for task, seconds, _ in sorted(known, key=lambda each: priority(each[0].cores, each[1], each[2])):
        load, count, index = min(loads)
        shares[index].append(task)
        loads[index] = (load + (longest if seconds is None else seconds), count + 1, index)
    return shares


def belongs_to(run: Run, batch: Path, index: int) -> bool:
    """Whether a run is still to be computed by that task of a batch."""
    return find_batch_task(run) == (batch, index)


def explain_removal(run: Run) -> str:
    """Why a run is not its job's any more."""
    return str((files.read_json(run.path(JOB)) or {}).get("out") or "submitted anew, or its files are gone")


def remove_from_job(run: Run, reason: str) -> None:
    """Have the allocation that a run was submitted to leave it alone, or end it if it trains it."""
    known = files.read_json(run.path(JOB)) or {}
    files.write_json(run.path(JOB), {**known, "id": None, "batch": None, "out": reason})
    if run.status() in (run_directory.PENDING, run_directory.PREEMPTED):  # nobody else will write of it
        write_state(run, status=run_directory.CANCELLED, reason=reason)


def find_in_shared_jobs(asked: Sequence[Run]) -> list[Run]:
    """Those of some runs whose jobs have to compute others, too, and so must not be ended for them."""
    places: dict[tuple[Path, int], list[Run]] = {}
    for run in asked:
        if (place := find_batch_task(run)) is not None:
            places.setdefault(place, []).append(run)
    batches = {path: read_batch(path) for path, _ in places}
    found: list[Run] = []
    for (path, index), mine in places.items():
        batch, directories = batches[path], {run.directory for run in mine}
        if batch is None or not batch.packed or index >= len(batch.tasks):
            continue
        others = (Run(path.parent.parent / run_directory.RUNS / name) for name in batch.tasks[index])
        left = (other for other in others if other.directory not in directories and other.status() in KEEPING)
        if any(belongs_to(other, path, index) for other in left):
            found += mine
    return found


def remove_from_jobs(runs: Collection[Run], reason: str, within_s: float) -> None:
    """Take runs out of their allocations; returns when their ranks are gone, or it takes too long."""
    for run in runs:
        remove_from_job(run, reason)
    deadline = time.monotonic() + within_s
    left = list(runs)
    while (left := [run for run in left if run.status() == run_directory.RUNNING]) and time.monotonic() < deadline:
        time.sleep(0.2)
