"""Chooses the run that starts next: the first in the queue, or a smaller one if that does not delay the first.

EASY backfill (Lifka, 1995): the first run in the queue has a reservation, the time at which enough resources will be
free for it, by the estimated ends of the running runs. A later run may start before the first one if it will have ended
at that time, or if it leaves enough of every resource for the first one. Without estimates for the running runs, all
runs start in order.

Amounts are numbers of cores, GPUs and places. Each run occupies one place, so the number of places limits how many runs
run at the same time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Amounts = tuple[int, ...]
UNLIMITED = 1 << 30
"""Places if only cores limit how many runs there are at the same time."""


def count_places(max_parallel: int | None, cores: int, share_cores: bool) -> int:
    """Return how many runs may run at the same time: `max_parallel`, or if all runs share the cores, one per core."""
    if max_parallel is not None:
        return max_parallel
    return cores if share_cores else UNLIMITED


def fits(wanted: Amounts, free: Amounts) -> bool:
    """Tell whether the wanted amount of each resource is free."""
    return all(some <= there for some, there in zip(wanted, free, strict=True))


def add(some: Amounts, other: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(some, other, strict=True))


def subtract(some: Amounts, other: Amounts) -> Amounts:
    return tuple(a - b for a, b in zip(some, other, strict=True))


@dataclasses.dataclass(eq=False)
class Entry(Generic[Item]):
    """A run in the queue.

    Attributes:
        wants: the amounts that the run needs.
        seconds: the estimated duration; None: unknown.
        promised: the earliest start that any of its reservations has given; after this time no run may overtake it.
    """

    item: Item
    wants: Amounts
    seconds: float | None = None
    promised: float = math.inf


class Backlog(Generic[Item]):
    """The queue of runs, in the order in which they were added; with backfill, but so that no run waits forever."""

    def __init__(self) -> None:
        self._entries: list[Entry[Item]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[Item]]:
        return iter(list(self._entries))

    @property
    def head(self) -> Entry[Item] | None:
        return self._entries[0] if self._entries else None

    def add(self, entries: Iterable[Entry[Item]]) -> None:
        self._entries += entries

    def remove(self, entry: Entry[Item]) -> None:
        self._entries.remove(entry)

    def backfill(self, free: Amounts, running: Sequence[tuple[Amounts, float | None]], now: float) -> list[Entry[Item]]:
        """Return entries that may all start now, before the first entry, for which too little is free.

        Args:
            free: the free amounts; the first entry needs more.
            running: for each running run its amounts, and its estimated end (None: unknown).
            now: the time in seconds, by the same clock as the ends.
        """
        head = self.head
        if head is None or not any(free) or (reserved := reserve(head.wants, free, running, now)) is None:
            return []
        start, spare = reserved
        head.promised = min(head.promised, start)
        if now > head.promised:
            return []  # an estimate was wrong: the head must not wait any longer for others
        chosen = []
        for entry in self._entries[1:]:
            if not fits(entry.wants, free):
                continue
            in_time = entry.seconds is not None and now + entry.seconds <= start
            if in_time or fits(entry.wants, spare):
                chosen.append(entry)
                free = subtract(free, entry.wants)
                spare = spare if in_time else subtract(spare, entry.wants)
        return chosen


def reserve(
    wants: Amounts, free: Amounts, running: Sequence[tuple[Amounts, float | None]], now: float
) -> tuple[float, Amounts] | None:
    """Return when the wanted amounts will be free, and which amounts will then be free besides; None if unknown."""
    ends = sorted((math.inf if end is None else max(end, now), has) for has, end in running)
    start = math.inf
    for end, has in ends:
        if end > start:
            break
        free = add(free, has)
        if start == math.inf and fits(wants, free):
            start = end  # what ends at the same moment is free then, too
    return None if start == math.inf else (start, subtract(free, wants))
