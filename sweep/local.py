"""Runs on this machine: a queue with slots, on submitit's executor interface.

submitit's own LocalExecutor starts everything at once, costs two Python start-ups a job and leaves
MPI ranks alive when a job is cancelled. Here a job is an `MpiRun`, started directly; it waits until as
many cores as it needs are free, and these are its own until it ends.

There is no thread: `poll` moves the queue on, and `job.wait()`, `job.done()` and `job.result()` call it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core.core import Executor, Job
from submitit.core.utils import DelayedSubmission, FailedJobError

from sweep import run as names
from sweep.mpirun import GRACE_S, Attempt, MpiRun, RunFailed, outcome, write_state

POLL_S = 0.02

# what submitit calls the states of a job, by ours
STATES = {
    names.PENDING: "PENDING",
    names.RUNNING: "RUNNING",
    names.DONE: "COMPLETED",
    names.DIVERGED: "COMPLETED",
    names.CANCELLED: "CANCELLED",
    names.PREEMPTED: "PREEMPTED",
}


class Slots:
    """The cores of this machine that this process may use, leased to one run at a time."""

    def __init__(self, cores: Sequence[int] | None = None) -> None:
        self.total = sorted(os.sched_getaffinity(0) if cores is None else cores)
        self.free = list(self.total)

    def lease(self, wanted: int) -> list[int] | None:
        """`wanted` cores, or None while too few are free. More than there are means all of them."""
        count = min(wanted, len(self.total))
        if count > len(self.free):
            return None
        leased, self.free = self.free[:count], self.free[count:]
        return leased

    def release(self, cores: Sequence[int]) -> None:
        self.free = sorted([*self.free, *cores])


class SlotJob(Job[dict[str, Any]]):
    """A queued, running or finished MpiRun; its result is the content of result.json."""

    def __init__(self, executor: SlotExecutor, task: MpiRun) -> None:
        self.executor, self.mpi_run = executor, task
        self.attempt: Attempt | None = None
        self.cores: list[int] = []
        self.status = names.PENDING
        self.reason: str | None = None
        super().__init__(executor.folder, task.run.name)

    def _register_in_watcher(self) -> None:
        """Nobody needs to be asked: the executor sees its own children."""

    @property
    def state(self) -> str:
        return STATES.get(self.status, "FAILED")

    def get_info(self, mode: str = "force") -> dict[str, str]:
        return {"jobState": self.state, "reason": self.reason or ""}

    def done(self, force_check: bool = False) -> bool:
        self.executor.poll()
        return self.status not in (names.PENDING, names.RUNNING)

    def wait(self) -> None:
        while not self.done():
            time.sleep(POLL_S)

    def cancel(self, check: bool = True) -> None:
        """End the job's processes (with `check`, wait until they are gone) or take it out of the queue."""
        self.executor.cancel([self], "cancelled", GRACE_S if check else 0.0)

    def exception(self) -> FailedJobError | None:
        self.wait()
        try:
            outcome(self.mpi_run.run)
        except RunFailed as error:
            return FailedJobError(f"{self.mpi_run.run.name}: {error}\n{self.stderr() or ''}")
        return None

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        try:
            return "success", outcome(self.mpi_run.run)
        except RunFailed as error:
            return "error", str(error)

    def _log(self, name: str) -> str | None:
        if self.attempt is None:
            return None
        return (self.attempt.directory / name).read_text(encoding="utf-8", errors="replace")

    def stdout(self) -> str | None:
        return self._log(names.STDOUT)

    def stderr(self) -> str | None:
        return self._log(names.STDERR)

    def __del__(self) -> None:
        if self._cancel_at_deletion and self.state in ("PENDING", "RUNNING"):
            self.cancel(check=False)


class SlotExecutor(Executor):
    """First in, first out, as many at a time as find free cores.

    Args:
        folder: not used for files (a run's directory has them all); part of submitit's interface.
        cores: the cores to share out; default: those that this process may run on.
        max_parallel: runs at the same time at most; None: no limit but the cores.
    """

    job_class = SlotJob

    def __init__(self, folder: str | Path, cores: Sequence[int] | None = None, max_parallel: int | None = None) -> None:
        super().__init__(folder)
        self.slots = Slots(cores)
        self.max_parallel = max_parallel
        self.queue: deque[SlotJob] = deque()
        self.running: list[SlotJob] = []

    @classmethod
    def name(cls) -> str:
        return "slots"

    @classmethod
    def affinity(cls) -> int:
        return 0  # submitit must not pick it by itself: it runs nothing but MpiRun

    def _internal_process_submissions(self, delayed_submissions: Sequence[DelayedSubmission]) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        for submission in delayed_submissions:
            if not isinstance(submission.function, MpiRun) or submission.args or submission.kwargs:
                raise TypeError(f"the executor `slots` runs MpiRun objects, not {submission.function!r}")
            job = SlotJob(self, submission.function)
            self.queue.append(job)
            jobs.append(job)
        self.poll()
        return jobs

    def poll(self) -> None:
        """Note which jobs have ended and start what fits on the cores that are free now."""
        for job in list(self.running):
            assert job.attempt is not None
            status = job.attempt.poll()
            if status is not None:
                self._ended(job, status, job.attempt.reason)
        while self.queue and (self.max_parallel is None or len(self.running) < self.max_parallel):
            cores = self.slots.lease(self.queue[0].mpi_run.cores)
            if cores is None:
                return  # strictly in order: a large run is not overtaken for ever by small ones
            self._start(self.queue.popleft(), cores)

    def _start(self, job: SlotJob, cores: list[int]) -> None:
        job.cores = cores
        self.running.append(job)
        try:
            job.attempt = job.mpi_run.start(cores)
            job.status = names.RUNNING
        except OSError as error:  # this run cannot start (a full disk, say); others may
            self._ended(job, names.FAILED, f"could not be started: {error}")
            _note(job)

    def _ended(self, job: SlotJob, status: str, reason: str | None) -> None:
        job.status, job.reason = status, reason
        self.running.remove(job)
        self.slots.release(job.cores)

    def cancel(self, jobs: Sequence[SlotJob], reason: str, grace_s: float = GRACE_S) -> None:
        """End these jobs: all are asked at once, then each is waited for."""
        for job in jobs:
            if job in self.queue:
                self.queue.remove(job)
                job.status, job.reason = names.CANCELLED, reason
                _note(job)
            elif job.attempt is not None:
                job.attempt.terminate(names.CANCELLED, reason)
        deadline = time.monotonic() + grace_s
        for job in jobs:
            if job in self.running and job.attempt is not None:
                job.attempt.stop(names.CANCELLED, reason, max(0.0, deadline - time.monotonic()))
                self._ended(job, job.attempt.status or names.CANCELLED, reason)

    def preempt_all(self) -> None:
        """Have what is running save and end by itself; what is queued does not begin."""
        self.cancel(list(self.queue), "SIGUSR1 came before its turn")
        for job in self.running:
            if job.attempt is not None:
                job.attempt.preempt()

    def cancel_all(self, reason: str) -> None:
        """End everything that is queued or running."""
        self.cancel([*self.queue, *self.running], reason)


def _note(job: SlotJob) -> None:
    """Write the state of a job that has no attempt to write it."""
    with contextlib.suppress(OSError):  # a full disk: a resume finds the run pending, which is as good
        write_state(job.mpi_run.run, status=job.status, reason=job.reason)
