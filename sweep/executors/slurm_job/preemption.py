"""What a job of SLURM is told by signals, and what it does with runs that it was sent away from."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from gradsweep import failure_causes, file_lock, files, run_directory
from gradsweep.file_lock import FileLock
from gradsweep.run_directory import Run
from sweep.directory.run_state import finish_attempt, finish_by_result, write_state
from sweep.settings.slurm_launcher import EARLY_S, SlurmOptions
from sweep.system.slurm_allocation import CAME, Allocation, compute_seconds_left, is_preempted

PATIENCE_S = 60.0  # for a job that was sent away to let go of its run
ENDED = "SLURM ended it: cancelled, preempted or out of time"
PREEMPTED = "SLURM preempted it: no time was left to save"


class JobSignals:
    """The signals that have come, instead of their ending this process."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self._why_ended: tuple[str, str | None] | None = None

    def listen(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        for name in os.environ.pop(CAME, "").split():  # while the lines of the setup ran
            self._note(signal.Signals[f"SIG{name}"], None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.setdefault(number, time.monotonic())

    def stop(self) -> bool:
        """Whether what runs is to be saved and left as it is."""
        return signal.SIGUSR1 in self.came

    def leave(self) -> bool:
        """Whether what runs is to be saved, to go on in another job."""
        return signal.SIGUSR2 in self.came

    def end(self) -> bool:
        """Whether everything is to end at once."""
        return signal.SIGTERM in self.came or signal.SIGINT in self.came

    def heed_announcement(self, allocation: Allocation) -> None:
        """Take a TERM that announces a preemption for a USR2: sites that send none leave a job some time after it."""
        if self.end() and self._why_ended is None:
            described = allocation.query_job()
            if is_preempted(described) and described.get("JobState") == "RUNNING":
                self.came[signal.SIGUSR2] = self.came.pop(signal.SIGTERM, time.monotonic())
            else:
                self._why_ended = _why_ended(described)

    def why_ended(self, allocation: Allocation) -> tuple[str, str | None]:
        """Why everything is to end at once, for people, and the cause where nobody wanted these runs to end.

        Whether SLURM queues the job again, it does not say so far.
        """
        if self._why_ended is None:
            self._why_ended = _why_ended(allocation.query_job())
        return self._why_ended

    def why(self, allocation: Allocation, options: SlurmOptions) -> str:
        """Why what runs is to be saved, for people."""
        if self.stop():
            return "asked to stop"
        described = allocation.query_job()
        if is_preempted(described):
            return "preempted by SLURM"
        left = compute_seconds_left(described)
        if left is None or left <= options.delay_s + EARLY_S:
            return f"near its time limit of {options.time} minutes"
        return "asked by SIGUSR2"


def _why_ended(described: Mapping[str, str]) -> tuple[str, str | None]:
    return (PREEMPTED, failure_causes.LOST) if is_preempted(described) else (ENDED, None)


def hold(path: Path, give_up: Callable[[], bool], patience_s: float = PATIENCE_S) -> FileLock | None:
    """The lock of a run, or of an allocation; None where another job keeps it."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return file_lock.take(path)
        except BlockingIOError:
            if time.monotonic() >= deadline or give_up():
                return None
            time.sleep(0.5)


def elsewhere(path: Path, what: str = "it") -> str:
    """That another job has the lock of a run, or of an allocation, for people."""
    file = file_lock.to_remove(path)
    return f"another job computes {what}" + ("" if file is None else f"; if that job is gone, remove {file}")


def settle(run: Run, job: str) -> None:
    """Bring the state of a run in line with what an earlier job of it has left: its result counts."""
    state = run.state()
    if state["status"] in run_directory.COMPLETE:
        return
    last = state["attempts"][-1] if state["attempts"] else {}
    if finish_by_result(run):
        return
    if last.get("status") == run_directory.RUNNING:
        stopped = files.read_json(run.attempt(last["number"]) / run_directory.STOPPED)
        if stopped is not None:
            finish_attempt(run, run_directory.PREEMPTED, stopped.get("reason"), None)
        elif last.get("job") == job:
            reason = "SLURM ended it and queued it again: preempted, or a node failed"
            finish_attempt(run, run_directory.PREEMPTED, reason, None, failure_causes.LOST)
        else:
            finish_attempt(run, run_directory.FAILED, "its job was lost", None, failure_causes.LOST)
    elif last.get("status") == run_directory.CANCELLED and last.get("job") == job:
        reason = "SLURM ended it and queued it again: preempted before it could be saved"
        finish_attempt(run, run_directory.PREEMPTED, reason, last.get("exit_code"), failure_causes.LOST)


def preemptions(run: Run, job: str) -> int:
    """How often a job has been sent away from a run: what its last attempt there was each time SLURM had started it."""
    attempts = run.state()["attempts"]
    last = {each.get("restarts"): each.get("status") for each in attempts if each.get("job") == job}
    return sum(status == run_directory.PREEMPTED for status in last.values())


def not_again(run: Run, refused: str, exit_code: int | None) -> None:
    """Note that a run was sent away and SLURM did not queue its job again, for the reason it gave: others may try."""
    reason = f"{run.state().get('reason')}; SLURM did not queue it again: {refused}"
    finish_attempt(run, run_directory.FAILED, reason, exit_code, failure_causes.LOST)


def give_up(run: Run, job: str, options: SlurmOptions) -> str:
    """Note that a run was sent away too often; returns why, for people."""
    times = preemptions(run, job)
    reason = f"preempted or out of time {times} times; hydra.launcher.requeues={options.requeues}"
    last: dict[str, Any] = run.state()["attempts"][-1]
    write_state(run, status=run_directory.TIMEOUT, reason=f"{reason}; the last time {last.get('reason')}")
    return reason
