"""Decides which runs share an MPI world, and how many ranks it has; also used by the dry run's forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep.attempts.run_task import RunTask


def build_world_key(task: RunTask) -> tuple[Any, ...]:
    """Return the properties that must be equal in all runs of a world."""
    return tuple(task.command), tuple(sorted(task.environment.items())), task.threads_per_worker, task.code


def compute_world_size(workers: Sequence[int], cores: int, threads: int, places: int) -> int:
    """Return the number of ranks of a world: as many as its largest run has, or more if small runs fit side by side.

    Args:
        workers: the number of ranks of each run.
        cores: the number of cores for all runs; 0: all runs share all cores.
        threads: the number of threads of each rank.
        places: the largest number of runs at the same time.
    """
    side_by_side = places * max(workers)
    if cores:
        side_by_side = min(side_by_side, cores // threads)
    return max(*workers, min(sum(workers), side_by_side))
