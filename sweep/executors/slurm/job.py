"""One run as a job of SLURM, as the launcher that waits for it sees it."""

from __future__ import annotations

import time

from gradsweep import run_directory
from sweep.attempts.run_task import RunTask
from sweep.executors.base import Job, RunExecutor
from sweep.executors.slurm.queue import GONE, ListedJob
from sweep.executors.slurm.submitted_jobs import reconcile_vanished


class SlurmJob(Job):
    """A run that is a job of SLURM, `slurm_id`; `why` is what it waits for, in SLURM's words."""

    def __init__(self, executor: RunExecutor, task: RunTask, slurm_id: str) -> None:
        super().__init__(executor, task)
        self.slurm_id = slurm_id
        self.why: str | None = None
        self.cancel_reason: str | None = None
        self.stamp: tuple[int, int] | None = None  # of state.json, when it was last read
        self.heard = time.monotonic()  # when state.json was last seen to change
        self.gone_since: float | None = None
        self.left: tuple[str, str | None] | None = None  # status and reason with which its own job has ended
        self.number: int | None = None  # of the attempt that was last seen to run
        self.told = False  # that this attempt has been sent away

    @property
    def is_ending(self) -> bool:
        """Whether its end was asked for, and it does nothing (more): SLURM is about to let it go."""
        return self.cancel_reason is not None and self.status == run_directory.PENDING

    def conclude(self, listed: ListedJob | None) -> None:
        """Take it for ended: SLURM does not have it any more, as `listed` says, where SLURM still knows of it."""
        run = self.task.run
        if self.left is not None and (listed is None or listed.state in ("COMPLETED", "FAILED")):
            self.status, self.reason = self.left
            if self.status == run_directory.CANCELLED:
                self.reason = self.cancel_reason or self.reason
            return
        self.cause = reconcile_vanished(run, listed, self.cancel_reason)
        state = run.state()
        self.status, self.reason = state["status"], state.get("reason")
        if self.status in (run_directory.PENDING, run_directory.RUNNING):  # a full disk: what was to be written is not
            self.status, self.reason = run_directory.FAILED, GONE[2]
