"""Which run is next: the longest first, and a smaller one before it only where that costs it nothing.

EASY backfill (Lifka, 1995): the first run in the queue has a reservation, the moment when, by the estimates for those
that are running, enough will be free for it. A later run may start before it if it will have ended by then, or if it
leaves enough of everything for it at that moment. Without estimates for what is running, all start in order.

Everything here is arithmetic on what there is of each resource: cores, GPUs, places among those running at a time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Amounts = tuple[int, ...]
UNLIMITED = 1 << 30
"""Places, where only cores limit how many runs there are at a time."""


def count_places(max_parallel: int | None, cores: int, share_cores: bool) -> int:
    """Runs at the same time at most; those that share all cores are as many as there are cores."""
    if max_parallel is not None:
        return max_parallel
    return cores if share_cores else UNLIMITED


def fits(wanted: Amounts, free: Amounts) -> bool:
    return all(some <= there for some, there in zip(wanted, free, strict=True))


def add(some: Amounts, other: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(some, other, strict=True))


def subtract(some: Amounts, other: Amounts) -> Amounts:
    return tuple(a - b for a, b in zip(some, other, strict=True))


@dataclasses.dataclass(eq=False)
class Entry(Generic[Item]):
    """A run in the queue.

    `seconds` is how long it will take, None where nobody knows; `weight` ranks those of equal wants that nobody knows.
    """

    item: Item
    wants: Amounts
    seconds: float | None = None
    weight: tuple[float, ...] = ()
    promised: float = math.inf
    """When it could have started at the latest, by its first reservation at the head."""

    @property
    def priority(self) -> tuple[Any, ...]:
        return priority(self.wants[0], self.seconds, self.weight)


def priority(cores: int, seconds: float | None, weight: Sequence[float]) -> tuple[Any, ...]:
    """Smaller for what is to start earlier."""
    cores = max(1, cores)
    heavy = tuple(-each for each in weight)
    if seconds is None:  # may be the longest of all
        return (False, -cores, heavy)
    return (True, -cores * seconds, heavy)


class Backlog(Generic[Item]):
    """The runs that wait. Those added together are ordered, the most core seconds first; those added later follow them.

    So nothing that is added can hold up for ever what is there.
    """

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
        self._entries += sorted(entries, key=lambda entry: entry.priority)

    def remove(self, entry: Entry[Item]) -> None:
        self._entries.remove(entry)

    def backfill(self, free: Amounts, running: Sequence[tuple[Amounts, float | None]], now: float) -> list[Entry[Item]]:
        """Who may start now though the head cannot: all of them together.

        Args:
            free: what could be leased now; the head wants more.
            running: what each running run has, and when it will end by its estimate.
            now: seconds, on the clock of the ends.
        """
        head = self.head
        if head is None or not any(free) or (reserved := reserve(head.wants, free, running, now)) is None:
            return []
        start, spare = reserved
        head.promised = min(head.promised, start)
        if now > head.promised:
            return []  # an estimate was wrong: nobody else may cost the head time
        found = []
        for entry in self._entries[1:]:
            if not fits(entry.wants, free):
                continue
            in_time = entry.seconds is not None and now + entry.seconds <= start
            if in_time or fits(entry.wants, spare):
                found.append(entry)
                free = subtract(free, entry.wants)
                spare = spare if in_time else subtract(spare, entry.wants)
        return found


def reserve(
    wants: Amounts, free: Amounts, running: Sequence[tuple[Amounts, float | None]], now: float
) -> tuple[float, Amounts] | None:
    """When so much will be free, and what will be free beside it; None where that cannot be known."""
    ends = sorted((math.inf if end is None else max(end, now), has) for has, end in running)
    start = math.inf
    for end, has in ends:
        if end > start:
            break
        free = add(free, has)
        if start == math.inf and fits(wants, free):
            start = end  # what ends at the same moment is free then, too
    return None if start == math.inf else (start, subtract(free, wants))
