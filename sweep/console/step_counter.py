"""Print the progress of a step that takes long with many points, on standard error: standard output may be piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

QUIET_S = {True: 1.5, False: 10.0}
"""Before the first line: on a terminal, and elsewhere. A step that ends sooner is not reported."""
EVERY_S = {True: 0.2, False: 10.0}
"""Between two lines: on a terminal, where one takes the place of the other, and elsewhere."""


class Count:
    """The progress of a step: how many of its items are done.

    Args:
        what: the items and their state, such as "points checked".
        silent: print nothing.
    """

    def __init__(self, what: str, total: int, *, silent: bool = False) -> None:
        self.what, self.total, self.done = what, total, 0
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + QUIET_S[self._terminal]
        self._silent = silent or sys.stderr is None
        self._shown = False

    def count_through(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; an item counts as done when the next one is requested."""
        try:
            for item in items:
                yield item
                self.done += 1
                if not self._silent and (now := time.monotonic()) >= self._next:
                    self._next = now + EVERY_S[self._terminal]
                    self._show(f"{self.what}: {self.done:,} of {self.total:,}")
        finally:
            if self._shown and self._terminal:
                self._write("\r\x1b[K")
                self._shown = False

    def _show(self, line: str) -> None:
        self._shown = True
        self._write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # the reader has gone
            self._silent = True


def count_through(what: str, items: Collection[Item], *, silent: bool = False) -> Iterator[Item]:
    """Yield the items and report how many are done; `silent`: report nothing."""
    return Count(what, len(items), silent=silent).count_through(items)
