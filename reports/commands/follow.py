"""Follow sweeps: find changed files, and tell whether a launcher still works on the sweeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk.regular_files import stamp_file
from sweep.status.overview import Overview

INTERVAL_S = 5.0
FILES = (run_directory.CONFIG, run_directory.STATE, run_directory.RESULT, run_directory.EPOCHS, run_directory.STEPS)
RACE_FILES = (run_directory.RACE_PLAN, run_directory.RATIOS)


class SweepFollower:
    """Checks sweeps for changed files.

    Args:
        find: a function that returns the directories of the sweeps; there may be more of them at each call.
    """

    def __init__(self, find: Callable[[], Sequence[Path]]) -> None:
        self.find = find
        self.is_active = False
        self._overviews: dict[Path, Overview] = {}
        self._stamps: dict[Path, int] = {}

    def find_changes(self) -> list[Path]:
        """Return the sweeps whose files have changed since the last call; set `is_active` if a launcher still works on
        one.
        """
        sweeps = list(self.find())
        # First, so that the last files of a sweep are seen after its end.
        overviews = [self._overviews.setdefault(sweep, Overview(sweep)) for sweep in sweeps]
        for overview in overviews:
            overview.refresh()
        self.is_active = any(overview.active for overview in overviews)
        before, self._stamps = self._stamps, {sweep: stamp_sweep(sweep) for sweep in sweeps}
        return [sweep for sweep in sweeps if self._stamps[sweep] != before.get(sweep)]

    def watch(self, interval_s: float) -> Iterator[list[Path]]:
        """Yield the changed sweeps after each change, until no launcher works on them.

        The pause between two checks is at least as long as the check and the caller's work, so that the sweep gets at
        least half of the time.
        """
        while True:
            began = time.monotonic()
            if changed := self.find_changes():
                yield changed
            if not self.is_active:
                return
            time.sleep(max(interval_s, time.monotonic() - began))


def stamp_sweep(sweep: Path) -> int:
    """Return a number that changes when any file of the sweep's runs or races changes."""
    stamps: list[object] = [stamp_file(f"{sweep}/{run_directory.SWEEP}")]
    for folder, files in ((run_directory.RUNS, FILES), (run_directory.RACES, RACE_FILES)):
        try:
            found = sorted(os.listdir(f"{sweep}/{folder}"))
        except OSError:
            continue
        for name in found:
            stamps += [name, *(stamp_file(f"{sweep}/{folder}/{name}/{file}") for file in files)]
    return hash(tuple(stamps))
