"""Decides which runs share an MPI world, and how many ranks it has; also used by the dry run's forecast."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sweep.attempts.run_task import RunTask


def build_world_key(task: RunTask) -> tuple[Any, ...]:
    """Return the properties that must be equal in all runs of a world; an emulated network has a host for each rank."""
    alike = tuple(task.command), tuple(sorted(task.environment.items())), task.threads_per_worker, task.code
    return alike if task.network is None else (*alike, json.dumps(task.network, sort_keys=True), task.workers)


def compute_world_size(tasks: Sequence[RunTask], cores: int, places: int) -> int:
    """Return the number of ranks of a world: as many as its largest run has, or more if small runs fit side by side.

    Runs on an emulated network train one after the other, as its links are for one run at a time.

    Args:
        tasks: the runs of the world, with the same world key.
        cores: the number of cores for all runs; 0: all runs share all cores.
        places: the largest number of runs at the same time.
    """
    workers = [task.workers for task in tasks]
    side_by_side = places * max(workers) if tasks[0].network is None else 0
    if cores:
        side_by_side = min(side_by_side, cores // tasks[0].threads_per_worker)
    return max(*workers, min(sum(workers), side_by_side))
