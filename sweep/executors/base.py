"""The interface of all executors of runs: a queue that `poll` moves on, without threads."""

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
"""Returns how many seconds a run will take; None if that is unknown."""
Arrange = Callable[[Sequence[RunTask]], Sequence[RunTask]]
"""Returns runs in the order in which they should start."""

POLL_S = 0.03  # between two polls, which then take a thousandth of a core


class Job:
    """A run that is queued, running or finished.

    A retry is another job, so a `status` other than pending and running is final.
    """

    def __init__(self, executor: RunExecutor, task: RunTask) -> None:
        self.executor, self.task = executor, task
        self.status = run_directory.PENDING
        self.reason: str | None = None
        self.cause: str | None = None  # see gradsweep/failure_causes.py
        self.waits_for: str | None = None  # other sweeps, if it is first in its queue; or SLURM, and why
        self.shared_cores = False  # others may have used its cores, so its times tell nothing

    @property
    def ended(self) -> bool:
        """Whether the job has ended, as of the executor's last poll."""
        return self.status not in (run_directory.PENDING, run_directory.RUNNING)

    def wait(self) -> None:
        """Poll the executor until the job has ended."""
        self.executor.poll()
        while not self.ended:
            time.sleep(POLL_S)
            self.executor.poll()

    def finish(self, status: str, reason: str | None, cause: str | None = None) -> None:
        """Record how the job has ended."""
        self.status, self.reason, self.cause = status, reason, cause

    def mark_pruned(self) -> None:
        """Change the status of a cancelled job to pruned: it was cancelled because other runs are better."""
        self.status = run_directory.PRUNED

    def cancel(self, grace_s: float = GRACE_S) -> None:
        """End the job's processes, or remove the job from the queue."""
        self.executor.cancel([self], "cancelled", grace_s)


class RunExecutor(abc.ABC):
    """Trains the runs of tasks: their results are in the run directories, and `poll` updates their jobs.

    Args:
        folder: the sweep's directory.
        estimate: estimates the duration of a run, for backfill and for dividing runs among SLURM jobs.
        arrange: orders the runs of one submission; None: they start in the order of submission.
    """

    can_leave = False
    """Whether jobs go on without this process, so that `leave` may be called and another process adopts them."""

    def __init__(self, folder: str | Path, estimate: Estimate | None = None, arrange: Arrange | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.estimate, self.arrange = estimate, arrange or list
        self.news: list[tuple[Job, int | None, str]] = []
        """Jobs that will begin another attempt by themselves, because a scheduler has queued them again or their MPI
        world has died: each with the attempt that has ended, and why. The reader empties the list."""

    def reconcile(self, run: Run) -> None:
        """Correct the status of a run that an earlier launcher may have left unfinished; call it before submitting.

        Raises:
            UsageError: the status cannot be determined, or a SLURM job computes the run.
        """
        reconcile_abandoned(run)

    def leave(self) -> None:
        """Forget the jobs, which continue without this process (if `can_leave`)."""
        raise NotImplementedError

    @abc.abstractmethod
    def submit_runs(self, tasks: Sequence[RunTask]) -> list[Job]:
        """Queue runs and return their jobs, in order; if a scheduler already has a job of a run, that job is adopted.

        Raises:
            UsageError: a run needs more cores or GPUs than there are; nothing was queued.
        """

    @property
    @abc.abstractmethod
    def active(self) -> bool:
        """Whether any job is queued or running."""

    @abc.abstractmethod
    def poll(self) -> None:
        """Detect which jobs have begun or ended, and start the next ones; may be called often."""

    @abc.abstractmethod
    def cancel(self, jobs: Sequence[Job], reason: str, grace_s: float = GRACE_S) -> None:
        """End these jobs, all at once, and wait until none of their processes is left."""

    def ask_to_end(self, jobs: Sequence[Job], reason: str) -> None:
        """Ask these jobs to end, without waiting for a scheduler's answer; without an answer, later polls ask again."""
        self.cancel(jobs, reason)

    @abc.abstractmethod
    def preempt_all(self) -> None:
        """Make running jobs save their state and end, and cancel queued jobs."""

    @abc.abstractmethod
    def cancel_all(self, reason: str) -> None:
        """End all queued and running jobs."""


def write_job_state(job: Job) -> None:
    """Write the status of a job into the run's state.json, for a job without an attempt, which otherwise writes it."""
    with contextlib.suppress(OSError):  # a full disk: a resume finds the run pending, which is as good
        write_state(job.task.run, status=job.status, reason=job.reason)
