"""Detects an attempt that makes no progress: no file of its run has changed for too long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep.disk.regular_files import stamp_file


class Watch:
    """Detects that none of some files has changed for too long.

    Of a long pause between two calls only a little counts: if launcher and ranks were stopped for an hour (Ctrl-Z), the
    run has not hung. Jumps of the wall clock do no harm: the pauses are measured by a monotonic clock, and the times of
    files are only compared for equality.
    """

    def __init__(self, files: Sequence[Path], hang_s: float) -> None:
        self.files, self.hang_s = files, hang_s
        self.interval_s = min(5.0, hang_s / 10)
        self.idle_s = 0.0
        self._looked = time.monotonic()
        self._seen = [*map(stamp_file, files)]

    def has_hung(self) -> bool:
        """Tell whether no file has changed for `hang_s` seconds; cheap if called often."""
        now = time.monotonic()
        if (passed := now - self._looked) >= self.interval_s:
            self._looked = now
            self.idle_s += min(passed, 2 * self.interval_s)
            if (seen := [*map(stamp_file, self.files)]) != self._seen:
                self._seen, self.idle_s = seen, 0.0
        return self.idle_s >= self.hang_s
