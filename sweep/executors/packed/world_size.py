"""A run that takes part in a world of many (sweep/executors/packed/world.py), and the ranks that train it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sweep.attempts.run_task import RunTask
from sweep.executors.packed.rank_connection import Rank

if TYPE_CHECKING:
    from sweep.executors.packed.world import PackedWorld


def key_of(task: RunTask) -> tuple[Any, ...]:
    """What the runs of one world have alike."""
    return tuple(task.command), tuple(sorted(task.environment.items())), task.threads_per_worker, task.code


def world_size(workers: Sequence[int], cores: int, threads: int, places: int) -> int:
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


class PackedRun(Protocol):
    """A run that takes part in a world; it is told how that went, once."""

    task: RunTask
    directory: Path
    suspect: bool
    """It was in a world that died, and nobody knows why: it is alone in its next one."""

    def place(self) -> dict[str, Any]:
        """Where its ranks compute, as part of an order."""

    def descriptors(self) -> list[int]:
        """What its ranks get: its stdout, its stderr, and what they keep open as long as they train it."""

    def handed_over(self) -> None:
        """They have them, or are on other nodes and get none."""

    def wrote(self, stream: int, data: bytes) -> None:
        """A rank that has no descriptors has printed something, to its stdout (0) or stderr (1)."""

    def ended(self, exit_code: int) -> None:
        """It has come to an end of its own, whatever that is."""

    def fell(self, world: PackedWorld, blamed: bool | None, exit_code: int) -> None:
        """The world is gone, through this run's fault or another's or nobody knows whose (None)."""


@dataclasses.dataclass
class Group:
    """The ranks that train one run, and what they have said of its end."""

    member: PackedRun
    ranks: list[Rank]
    said: dict[int, str | None] = dataclasses.field(default_factory=dict)
    failed_at: float | None = None

    def is_over(self, rank: Rank, failed: str | None) -> bool:
        """Note that the run has ended in a rank, and how; whether it has in all, which are then free."""
        self.said[rank.number] = failed
        if failed and self.failed_at is None:
            self.failed_at = time.monotonic()
        if len(self.said) < len(self.ranks) or "badly" in self.said.values():
            return False
        for each in self.ranks:
            each.run = None
        return True
