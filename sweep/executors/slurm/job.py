"""The launcher's view of a run that is computed by a SLURM job."""

from __future__ import annotations

import time

from gradsweep import run_directory
from sweep.attempts.run_task import RunTask
from sweep.executors.base import Job, RunExecutor
from sweep.executors.slurm.queue import GONE, ListedJob
from sweep.executors.slurm.submitted_jobs import reconcile_vanished


class SlurmJob(Job):
    """A run that is computed by a SLURM job; `SlurmRunExecutor` updates it.

    Attributes:
        slurm_id: the id of the SLURM job.
        why: the reason why the job waits, in SLURM's words.
        ended_as: the status and reason that the job wrote when it ended; not final, as SLURM may queue the job again.
    """

    def __init__(self, executor: RunExecutor, task: RunTask, slurm_id: str) -> None:
        super().__init__(executor, task)
        self.slurm_id = slurm_id
        self.why: str | None = None
        self.cancel_reason: str | None = None
        self.stamp: tuple[int, int, int] | None = None  # of state.json, when it was last read
        self.alive_at = time.monotonic()  # when it last gave a sign of life
        self.gone_since: float | None = None
        self.ended_as: tuple[str, str | None] | None = None
        self.number: int | None = None  # of the attempt that was last seen to run
        self.reported = False  # that this attempt was preempted

    @property
    def is_ending(self) -> bool:
        """Whether the job was asked to end and is not running, so that SLURM will soon remove it."""
        return self.cancel_reason is not None and self.status == run_directory.PENDING

    def conclude(self, listed: ListedJob | None) -> None:
        """Record the end of the job, which SLURM no longer lists (`listed` is None) or lists as ended."""
        run = self.task.run
        if self.ended_as is not None and (listed is None or listed.state in ("COMPLETED", "FAILED")):
            self.status, self.reason = self.ended_as
            if self.status == run_directory.CANCELLED:
                self.reason = self.cancel_reason or self.reason
            return
        self.cause = reconcile_vanished(run, listed, self.cancel_reason)
        state = run.state()
        self.status, self.reason = state["status"], state.get("reason")
        if self.status in (run_directory.PENDING, run_directory.RUNNING):  # a full disk: the state could not be written
            self.status, self.reason = run_directory.FAILED, GONE[2]
