"""The interface of all executors of runs: a queue that `poll` moves on, and no thread."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import reconcile_abandoned, write_state
from sweep.system.processes import GRACE_S

Estimate = Callable[[RunTask], float | None]
"""Returns how many seconds a run will take, None where nobody knows."""
Weigh = Callable[[RunTask], tuple[float, ...]]
"""Returns more for longer runs, as far as that can be told without an estimate."""

POLL_S = 0.03  # between two looks at what has ended: of each second of a core, the looks take a thousandth


class Job:
    """A queued, running or finished run.

    `status` is this job's, and final once it is neither pending nor running: a retry is another job.
    """

    def __init__(self, executor: RunExecutor, task: RunTask) -> None:
        self.executor, self.task = executor, task
        self.status = run_directory.PENDING
        self.reason: str | None = None
        self.cause: str | None = None  # of failure_causes.py
        self.waits_for: str | None = None  # other sweeps, while it is first in its queue; or SLURM, and why
        self.shared_cores = False  # its times tell nothing: others may have used the cores that it ran on

    @property
    def ended(self) -> bool:
        """Whether the job has come to its end, as far as the executor has been polled."""
        return self.status not in (run_directory.PENDING, run_directory.RUNNING)

    def wait(self) -> None:
        """Poll the executor until the job has ended."""
        self.executor.poll()
        while not self.ended:
            time.sleep(POLL_S)
            self.executor.poll()

    def cancel(self, grace_s: float = GRACE_S) -> None:
        """End the job's processes, or take it out of the queue."""
        self.executor.cancel([self], "cancelled", grace_s)


class RunExecutor(abc.ABC):
    """Computes tasks. What becomes of them is in their directories; `poll` brings jobs up to date.

    Args:
        folder: of the sweep.
        estimate: runs may be ordered by it.
        weigh: likewise, where there is no estimate.
    """

    can_leave = False
    """Whether jobs go on without this process, so that `leave` may be called and another process adopts them."""

    def __init__(self, folder: str | Path, estimate: Estimate | None = None, weigh: Weigh | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.estimate, self.weigh = estimate, weigh
        self.news: list[tuple[Job, int | None, str]] = []
        """Jobs whose attempt has ended and that will begin another by themselves (a scheduler has queued them again, or
        their MPI world has died), which attempt that was, and why; for who takes it."""

    def reconcile(self, run: Run) -> None:
        """Bring the state of a run in line with what has become of it, before any is submitted.

        Raises:
            UsageError: this cannot be learned, or a job of SLURM computes it.
        """
        reconcile_abandoned(run)

    def leave(self) -> None:
        """Forget the jobs, which go on by themselves (`can_leave`)."""
        raise NotImplementedError

    @abc.abstractmethod
    def submit_runs(self, tasks: Sequence[RunTask]) -> list[Job]:
        """Queue runs; returns their jobs, in order. What is queued or running already is adopted.

        Raises:
            UsageError: what they want can never be had; nothing was queued.
        """

    @property
    @abc.abstractmethod
    def active(self) -> bool:
        """Whether anything is queued or running."""

    @abc.abstractmethod
    def poll(self) -> None:
        """Note which jobs have begun and ended, and start what can be. May be called at any rate."""

    @abc.abstractmethod
    def cancel(self, jobs: Sequence[Job], reason: str, grace_s: float = GRACE_S) -> None:
        """End these jobs, all at once; returns when nothing of them is left."""

    def ask_to_end(self, jobs: Sequence[Job], reason: str) -> None:
        """Have these jobs ended as `cancel` does, where that takes long without waiting for it: `poll` tells of it.

        Where a scheduler cannot be asked at the moment, it is asked again.
        """
        self.cancel(jobs, reason)

    @abc.abstractmethod
    def preempt_all(self) -> None:
        """Have what is running save and end by itself; what is queued does not begin."""

    @abc.abstractmethod
    def cancel_all(self, reason: str) -> None:
        """End everything that is queued or running."""


def write_job_state(job: Job) -> None:
    """Write the state of a job that has no attempt to write it."""
    with contextlib.suppress(OSError):  # a full disk: a resume finds the run pending, which is as good
        write_state(job.task.run, status=job.status, reason=job.reason)
