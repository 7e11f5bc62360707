"""Keep the page of a running sweep up to date in a thread of its own, so that no request waits for a report."""

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
    """A version of report.html."""

    plain: bytes
    zipped: bytes
    version: str  # changes with the page

    @classmethod
    def from_text(cls, text: str) -> Page:
        plain = text.encode("utf-8", "replace")
        return cls(plain, gzip.compress(plain, 5, mtime=0), hashlib.sha256(plain).hexdigest()[:16])


class Renderer(threading.Thread):
    """Renders the page after files have changed, and then rests at least as long as the rendering took.

    Args:
        has_changed: tells whether files have changed since its last call; called by this thread alone.
        is_active: tells whether a launcher works on the sweep.
        render: returns the page; called by this thread alone.
        interval_s: the time between two checks for changed files.

    Attributes:
        page: the latest version; None before the first.
        problem: one line on why the present state could not be rendered; empty if it could.
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
            except Exception as error:  # whatever it is, the present page stays, and the next may succeed
                problem = " ".join(f"{type(error).__name__}: {error}".split())
                if problem != self.problem:
                    print(f"reports: the page could not be made: {problem}", file=sys.stderr)
                self.problem = problem
            self._ended.wait(max(self.interval_s, time.monotonic() - began))

    def end(self) -> None:
        """Ask the thread to end after its current page."""
        self._ended.set()

    def get_state(self) -> dict[str, str | bool | None]:
        """Return the state of the page as JSON values, for which the browser polls."""
        version = None if self.page is None else self.page.version
        return {"version": version, "active": self.is_active(), "problem": self.problem}
