"""Decides which runs share an MPI world, and how many ranks it has; used by forecasts as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep.attempts.run_task import RunTask


def build_world_key(task: RunTask) -> tuple[Any, ...]:
    """Return the properties in which runs of one world must be equal."""
    return tuple(task.command), tuple(sorted(task.environment.items())), task.threads_per_worker, task.code


def compute_world_size(workers: Sequence[int], cores: int, threads: int, places: int) -> int:
    """Return the number of ranks of a world: those of its largest run, or more for small simultaneous runs.

    Args:
        workers: of each run.
        cores: to share out; 0: all runs share all cores.
        threads: of each rank.
        places: runs at the same time at most.
    """
    side_by_side = places * max(workers)
    if cores:
        side_by_side = min(side_by_side, cores // threads)
    return max(*workers, min(sum(workers), side_by_side))
