"""The signals that tell a SLURM job to save its runs, to continue in another job, or to end; and their reasons."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from types import FrameType

from gradsweep import failure_causes
from sweep.settings.slurm_launcher import EARLY_S, SlurmOptions
from sweep.system.slurm_allocation import CAME, Allocation, compute_seconds_left, is_preempted

ENDED = "SLURM ended it: cancelled, preempted or out of time"
PREEMPTED = "SLURM preempted it: no time was left to save"


class JobSignals:
    """Records received signals, so that they do not end this process."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self._why_ended: tuple[str, str | None] | None = None

    def listen(self) -> None:
        """Record signals from now on, and those that arrived during the setup lines of the batch script."""
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        for name in os.environ.pop(CAME, "").split():
            self._note(signal.Signals[f"SIG{name}"], None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.setdefault(number, time.monotonic())

    @property
    def must_stop(self) -> bool:
        """Whether the runs are to be saved and ended, without being continued by another job."""
        return signal.SIGUSR1 in self.came

    @property
    def must_move(self) -> bool:
        """Whether the runs are to be saved and continued by another job."""
        return signal.SIGUSR2 in self.came

    @property
    def must_end(self) -> bool:
        """Whether all processes are to end at once."""
        return signal.SIGTERM in self.came or signal.SIGINT in self.came

    def accept_preemption_notice(self, allocation: Allocation) -> None:
        """Treat a SIGTERM that announces a preemption as SIGUSR2, because some sites send only SIGTERM."""
        if self.must_end and self._why_ended is None:
            described = allocation.query_job()
            if is_preempted(described) and described.get("JobState") == "RUNNING":
                self.came[signal.SIGUSR2] = self.came.pop(signal.SIGTERM, time.monotonic())
            else:
                self._why_ended = _explain_end(described)

    def explain_end(self, allocation: Allocation) -> tuple[str, str | None]:
        """Return why all processes must end, in words, and the cause (None: a user has cancelled the job).

        At this time SLURM does not yet tell whether it will queue the job again.
        """
        if self._why_ended is None:
            self._why_ended = _explain_end(allocation.query_job())
        return self._why_ended

    def explain_stop(self, allocation: Allocation, options: SlurmOptions) -> str:
        """Return why the runs must be saved, in words."""
        if self.must_stop:
            return "asked to stop"
        described = allocation.query_job()
        if is_preempted(described):
            return "preempted by SLURM"
        left = compute_seconds_left(described)
        if left is None or left <= options.delay_s + EARLY_S:
            return f"near its time limit of {options.time} minutes"
        return "asked by SIGUSR2"


def _explain_end(described: Mapping[str, str]) -> tuple[str, str | None]:
    return (PREEMPTED, failure_causes.LOST) if is_preempted(described) else (ENDED, None)
