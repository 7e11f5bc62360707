"""The page of a sweep that goes on, kept up to date by a thread of its own: no request ever waits for a report."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import sys
import threading
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Page:
    """report.html as it was at some moment."""

    plain: bytes
    zipped: bytes
    version: str  # another one for another page

    @classmethod
    def from_text(cls, text: str) -> Page:
        plain = text.encode("utf-8", "replace")
        return cls(plain, gzip.compress(plain, 5, mtime=0), hashlib.sha256(plain).hexdigest()[:16])


class Renderer(threading.Thread):
    """Renders when something has changed, and rests at least as long as that took.

    Args:
        has_changed: whether to render again, since it was asked last; asked by this thread alone.
        is_active: whether anybody works on the sweep.
        render: the page; likewise.
        interval_s: between two looks.

    Attributes:
        page: the latest one; None until there is one.
        problem: why there is none for what is there now, in a line; empty where there is.
    """

    def __init__(
        self,
        has_changed: Callable[[], bool],
        is_active: Callable[[], bool],
        render: Callable[[], str],
        interval_s: float,
    ) -> None:
        super().__init__(daemon=True)
        self.has_changed, self.is_active, self.render, self.interval_s = has_changed, is_active, render, interval_s
        self.page: Page | None = None
        self.problem = ""
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                if self.has_changed():
                    self.page = Page.from_text(self.render())
                self.problem = ""
            except Exception as error:  # whatever it is, the page that there is stays, and the next may do
                problem = " ".join(f"{type(error).__name__}: {error}".split())
                if problem != self.problem:
                    print(f"reports: the page could not be made: {problem}", file=sys.stderr)
                self.problem = problem
            self._ended.wait(max(self.interval_s, time.monotonic() - began))

    def end(self) -> None:
        """Have the thread end when it is done with what it is at."""
        self._ended.set()

    def get_state(self) -> dict[str, str | bool | None]:
        """What the page in the browser asks again and again."""
        version = None if self.page is None else self.page.version
        return {"version": version, "active": self.is_active(), "problem": self.problem}
