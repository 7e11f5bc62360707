"""Which runs share an MPI world, and how many ranks it has; for those that count without starting any, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweep.attempts.run_task import RunTask

if TYPE_CHECKING:
    pass


def build_world_key(task: RunTask) -> tuple[Any, ...]:
    """What the runs of one world have alike."""
    return tuple(task.command), tuple(sorted(task.environment.items())), task.threads_per_worker, task.code


def compute_world_size(workers: Sequence[int], cores: int, threads: int, places: int) -> int:
    """Ranks of a world: as many as the largest of its runs wants, and more where small ones can train side by side.

    Args:
        workers: of each run.
        cores: that they do not share; 0: they share all.
        threads: of each rank.
        places: for runs at the same time.
    """
    side_by_side = places * max(workers)
    if cores:
        side_by_side = min(side_by_side, cores // threads)
    return max(*workers, min(sum(workers), side_by_side))
