"""The base class of our programs in SLURM jobs: locks runs, gives signs of life, and records preemptions."""

from __future__ import annotations

import abc
import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradsweep import failure_causes, run_directory
from gradsweep.disk import file_lock
from gradsweep.disk.file_lock import FileLock
from gradsweep.run_directory import Run
from sweep.directory.run_state import finish_attempt, finish_by_files, write_state
from sweep.executors.slurm_job.job_signals import JobSignals
from sweep.settings.slurm_launcher import SlurmOptions
from sweep.system.slurm_allocation import Allocation

PATIENCE_S = 60.0  # for a job that was preempted to release the lock of its run


class AllocatedJob(abc.ABC):
    """Trains runs in the allocation of a SLURM job, which may be preempted and queued again.

    Args:
        allocation: the job's allocation.
        signals: records the signals to this process; it already listens.
        options: the options of hydra/launcher for these runs.
    """

    def __init__(self, allocation: Allocation, signals: JobSignals, options: SlurmOptions) -> None:
        self.allocation, self.signals, self.options = allocation, signals, options
        self._next_beat = 0.0
        self._why: str | None = None
        """Why the runs were asked to save and end."""

    @abc.abstractmethod
    def compute(self) -> int:
        """Train the runs until they or this job must end, and return the exit status."""

    def _lock(self, path: Path, patience_s: float = PATIENCE_S) -> FileLock | None:
        """Return the lock of a run or an allocation; None if another job still holds it after `patience_s`."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return file_lock.take(path)
            except BlockingIOError:
                if time.monotonic() >= deadline or self.signals.must_end:
                    return None
                time.sleep(0.5)

    def _show_life(self, runs: Iterable[Run]) -> None:
        """Touch the runs' state.json regularly, to show the launcher that this job is alive."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self.options.poll_s
            for run in runs:
                with contextlib.suppress(OSError):
                    os.utime(run.path(run_directory.STATE))

    def _reconcile(self, run: Run) -> None:
        """Write the status of a run that an earlier job has begun: that of its result, else preempted or lost."""
        state = run.state()
        last = state["attempts"][-1] if state["attempts"] else {}
        is_running = last.get("status") == run_directory.RUNNING
        if state["status"] in run_directory.COMPLETE or finish_by_files(run, is_running=is_running):
            return
        if is_running and last.get("job") == self.allocation.job:
            reason = "SLURM ended it and queued it again: preempted, or a node failed"
            finish_attempt(run, run_directory.PREEMPTED, reason, None, failure_causes.LOST)
        elif is_running:
            finish_attempt(run, run_directory.FAILED, "its job was lost", None, failure_causes.LOST)
        elif last.get("status") == run_directory.CANCELLED and last.get("job") == self.allocation.job:
            reason = "SLURM ended it and queued it again: preempted before it could be saved"
            finish_attempt(run, run_directory.PREEMPTED, reason, last.get("exit_code"), failure_causes.LOST)

    def _has_requeues_left(self, run: Run) -> bool:
        return count_preemptions(run, self.allocation.job) <= self.options.requeues

    def _give_up(self, run: Run) -> None:
        """Record that a run was preempted too often."""
        times = count_preemptions(run, self.allocation.job)
        reason = f"preempted or out of time {times} times; hydra.launcher.requeues={self.options.requeues}"
        last: dict[str, Any] = run.state()["attempts"][-1]
        write_state(run, status=run_directory.TIMEOUT, reason=f"{reason}; the last time {last.get('reason')}")
        print(f"{run.name}: {reason}", file=sys.stderr)

    def _requeue(self, runs: Iterable[Run], exit_code: int | None) -> bool:
        """Make SLURM queue this job again; if SLURM refuses, mark the preempted `runs` as failed, and return False.

        If it is not known whether SLURM does so, they stay preempted, with the cause LOST: a resume then takes them up
        if their job has gone.
        """
        is_queued, refused = self.allocation.requeue()
        if is_queued:
            return True
        for run in runs:
            state = run.state()
            if state["status"] == run_directory.PREEMPTED and is_queued is None:
                finish_attempt(run, run_directory.PREEMPTED, state.get("reason"), exit_code, failure_causes.LOST)
            elif state["status"] == run_directory.PREEMPTED:
                reason = f"{state.get('reason')}; SLURM did not queue it again: {refused}"
                finish_attempt(run, run_directory.FAILED, reason, exit_code, failure_causes.LOST)
        return is_queued is None


def explain_lock(path: Path, what: str = "it") -> str:
    """Return a line for people: another job has locked `what` (a run or an allocation)."""
    file = file_lock.to_remove(path)
    return f"another job computes {what}" + ("" if file is None else f"; if that job is gone, remove {file}")


def count_preemptions(run: Run, job: str) -> int:
    """Return how often a job was preempted while it trained a run, counted once for each start of the job by SLURM."""
    attempts = run.state()["attempts"]
    last = {attempt.get("restarts"): attempt.get("status") for attempt in attempts if attempt.get("job") == job}
    return sum(status == run_directory.PREEMPTED for status in last.values())
