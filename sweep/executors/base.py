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
Weigh = Callable[[RunTask], tuple[float, ...]]
"""Returns a key that is greater for runs that are longer, as far as their configs tell."""

POLL_S = 0.03  # between two polls, which then take a thousandth of a core


class Job:
    """A queued, running or finished run.

    `status` is this job's, and final once it is neither pending nor running: a retry is another job.
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
        """Whether the job has ended, by the last poll of the executor."""
        return self.status not in (run_directory.PENDING, run_directory.RUNNING)

    def wait(self) -> None:
        """Poll the executor until the job has ended."""
        self.executor.poll()
        while not self.ended:
            time.sleep(POLL_S)
            self.executor.poll()

    def finish(self, status: str, reason: str | None, cause: str | None = None) -> None:
        """Note how the job has ended."""
        self.status, self.reason, self.cause = status, reason, cause

    def mark_pruned(self) -> None:
        """Count the cancelled job as pruned: it was cancelled because other runs do better."""
        self.status = run_directory.PRUNED

    def cancel(self, grace_s: float = GRACE_S) -> None:
        """End the job's processes, or take it out of the queue."""
        self.executor.cancel([self], "cancelled", grace_s)


class RunExecutor(abc.ABC):
    """Computes tasks; results are in the directories of their runs, and `poll` brings the jobs up to date.

    Args:
        folder: of the sweep.
        estimate: runs may be ordered by it.
        weigh: runs without an estimate may be ordered by it.
    """

    can_leave = False
    """Whether jobs go on without this process, so that `leave` may be called and another process adopts them."""

    def __init__(self, folder: str | Path, estimate: Estimate | None = None, weigh: Weigh | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.estimate, self.weigh = estimate, weigh
        self.news: list[tuple[Job, int | None, str]] = []
        """Jobs that will begin another attempt by themselves, because a scheduler has queued them again or their MPI
        world has died: each with the attempt that has ended, and why. The reader empties the list."""

    def reconcile(self, run: Run) -> None:
        """Write the status of a run that an earlier launcher may have left, before any run is submitted.

        Raises:
            UsageError: the status cannot be found out, or a job of SLURM computes the run.
        """
        reconcile_abandoned(run)

    def leave(self) -> None:
        """Forget the jobs, which go on by themselves (`can_leave`)."""
        raise NotImplementedError

    @abc.abstractmethod
    def submit_runs(self, tasks: Sequence[RunTask]) -> list[Job]:
        """Queue runs and return their jobs, in order; what a scheduler has queued or runs already is adopted.

        Raises:
            UsageError: a run wants more than there is; nothing was queued.
        """

    @property
    @abc.abstractmethod
    def active(self) -> bool:
        """Whether anything is queued or running."""

    @abc.abstractmethod
    def poll(self) -> None:
        """Note which jobs have begun and ended, and start jobs whose turn it is; may be called at any rate."""

    @abc.abstractmethod
    def cancel(self, jobs: Sequence[Job], reason: str, grace_s: float = GRACE_S) -> None:
        """End these jobs, all at once, and wait until none of their processes is left."""

    def ask_to_end(self, jobs: Sequence[Job], reason: str) -> None:
        """Have these jobs ended without waiting for a scheduler, which is asked again if it does not answer."""
        self.cancel(jobs, reason)

    @abc.abstractmethod
    def preempt_all(self) -> None:
        """Have running jobs save and end, and cancel queued ones."""

    @abc.abstractmethod
    def cancel_all(self, reason: str) -> None:
        """End everything that is queued or running."""


def write_job_state(job: Job) -> None:
    """Write the state of a job that has no attempt to write it into state.json."""
    with contextlib.suppress(OSError):  # a full disk: a resume finds the run pending, which is as good
        write_state(job.task.run, status=job.status, reason=job.reason)
