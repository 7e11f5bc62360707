"""Tell by the kernel's counter whether it has killed a process because memory ran out, which leaves no message."""

from __future__ import annotations

import collections
import re
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
RECENT_S = 10.0
"""Seconds between a kill and the end of its attempt at most: mpirun notices a lost rank only after a moment."""


def find_counter_file(cgroups: str, root: Path = ROOT) -> Path | None:
    """Return the file with the counter `oom_kill` of this process's cgroup; None if it cannot be read.

    Args:
        cgroups: the content of /proc/self/cgroup: lines `number:controllers:path`.
    """
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        path = path.lstrip("/")
        if controllers == "":  # version 2: a parent counts what its children lose, a SLURM job what its steps do
            path = re.sub(r"(/job_\d+)/.*", r"\1", path)
            candidates = [root / path / "memory.events", root / "unified" / path / "memory.events"]
        elif "memory" in controllers.split(","):
            candidates = [root / "memory" / path / "memory.oom_control", root / "memory" / "memory.oom_control"]
        else:
            continue
        for candidate in candidates:
            if "oom_kill " in _read(candidate):
                return candidate
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class OomKills:
    """Watches the counter `oom_kill` of this process's cgroup; without a counter it never reports a kill."""

    def __init__(self) -> None:
        self._file = find_counter_file(_read(Path("/proc/self/cgroup")))
        self._samples: collections.deque[tuple[float, int]] = collections.deque()
        self.look()

    def _count(self) -> int:
        match = re.search(r"^oom_kill (\d+)$", _read(self._file), re.MULTILINE) if self._file is not None else None
        return int(match[1]) if match else 0

    def look(self) -> None:
        """Sample the counter; may be called often."""
        now = time.monotonic()
        if self._file is not None and (not self._samples or now - self._samples[-1][0] >= 1):
            self._samples.append((now, self._count()))
            while len(self._samples) > 1 and self._samples[1][0] <= now - RECENT_S:
                self._samples.popleft()

    def has_recent(self) -> bool:
        """Tell whether the counter has increased within the last `RECENT_S` seconds."""
        return bool(self._samples) and self._count() > self._samples[0][1]
