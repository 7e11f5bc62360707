"""Tells when an attempt makes no progress: when no file of its run has changed for too long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep.disk.regular_files import stamp_file


class Watch:
    """Tells when files have not changed for too long.

    Only time between regular calls counts: after a launcher and its ranks have been stopped for an hour (Ctrl-Z),
    nothing has hung. A wall clock that jumps does no harm: time is monotonic, and the times of files are only compared
    for equality.
    """

    def __init__(self, files: Sequence[Path], hang_s: float) -> None:
        self.files, self.hang_s = files, hang_s
        self.interval_s = min(5.0, hang_s / 10)
        self.idle_s = 0.0
        self._looked = time.monotonic()
        self._seen = [*map(stamp_file, files)]

    def has_hung(self) -> bool:
        """Tell whether no file has changed for `hang_s` seconds; may be called as often as you like."""
        now = time.monotonic()
        if (passed := now - self._looked) >= self.interval_s:
            self._looked = now
            self.idle_s += min(passed, 2 * self.interval_s)
            if (seen := [*map(stamp_file, self.files)]) != self._seen:
                self._seen, self.idle_s = seen, 0.0
        return self.idle_s >= self.hang_s
