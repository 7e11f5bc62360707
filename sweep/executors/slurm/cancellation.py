"""Has SLURM end jobs in the background, because scancel hangs if slurmctld does not answer."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable

from sweep.executors.slurm.queue import MOST_IDS, build_environment, format_refusal, is_gone

PATIENCE_S = 60.0  # for one scancel


class Cancellations:
    """Runs one scancel after the other until SLURM has accepted the end of all jobs.

    Args:
        again_s: between two attempts if SLURM does not answer.
    """

    def __init__(self, again_s: float) -> None:
        self.again_s = again_s
        self._reported = False  # that SLURM does not end jobs
        self._due: dict[str, float] = {}  # when to ask SLURM, by time.monotonic(), for each job
        self._asked: list[str] = []  # the jobs of the scancel that runs
        self._scancel: subprocess.Popen[str] | None = None
        self._until = 0.0

    def request(self, ids: Iterable[str]) -> None:
        """Have jobs ended; the id of an array stands for all of its tasks."""
        for id in ids:
            self._due.setdefault(id, 0.0)
        self.poll()

    def poll(self) -> bool:
        """Start what is due, and tell whether SLURM has just accepted something; may be called at any rate."""
        done = self._scancel is not None and self._has_succeeded(self._scancel)
        now = time.monotonic()
        due = [id for id, at in self._due.items() if at <= now][:MOST_IDS]
        if self._scancel is None and due:
            try:
                self._scancel = subprocess.Popen(
                    ["scancel", *due],
                    env=build_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                self._postpone(due, f"scancel: {error.strerror}")
            else:
                self._asked, self._until = due, now + PATIENCE_S
        return done

    def _has_succeeded(self, scancel: subprocess.Popen[str]) -> bool:
        """Tell whether the scancel has ended and SLURM has accepted it; if SLURM refused, it is postponed."""
        code = scancel.poll()
        if code is None and time.monotonic() < self._until:
            return False
        self._scancel = None
        with scancel:
            if code is None:
                scancel.kill()
                refused: str | None = f"scancel did not answer for {PATIENCE_S:.0f} s"
            else:
                output = scancel.stderr.read() if scancel.stderr is not None else ""
                refused = format_refusal("scancel", code, output) if code else None
        if refused is not None and not is_gone(refused):
            self._postpone(self._asked, refused)
            return False
        self._reported = False
        for id in self._asked:
            self._due.pop(id, None)
        return True

    def _postpone(self, ids: Iterable[str], why: str) -> None:
        self._due.update(dict.fromkeys(ids, time.monotonic() + self.again_s))
        if not self._reported:
            self._reported = True
            print(f"SLURM does not end jobs ({why}); it is asked again every {self.again_s:g} s", file=sys.stderr)
