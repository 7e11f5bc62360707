"""The executor for this machine: a queue of runs, which start when slots are free.

A run waits until the cores and GPUs that it needs are free, and has them for itself until it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.attempt import Attempt
from sweep.attempts.failures import explain_start_error
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.executors.backlog import UNLIMITED, Amounts, Backlog, Entry, count_places
from sweep.executors.base import Arrange, Estimate, Job, RunExecutor, write_job_state
from sweep.executors.slots import LockedSlots, Slots
from sweep.system.lease import Lease
from sweep.system.processes import GRACE_S

LOOK_S = 1.0  # between two checks of what other sweeps do


class SlotJob(Job):
    """A run on this machine with its own cores and GPUs."""

    def __init__(self, executor: SlotExecutor, task: RunTask) -> None:
        self.attempt: Attempt | None = None
        self.lease: Lease | None = None
        self.wants: Amounts = executor.compute_wants(task)
        self.seconds = executor.estimate(task) if executor.estimate else None
        self.ends: float | None = None  # by its estimate, on the clock of time.monotonic()
        super().__init__(executor, task)


class SlotExecutor(RunExecutor):
    """Trains runs in order on this machine, as many at the same time as have free slots (backlog.py, slots.py).

    Args:
        folder: the sweep's directory; only files of its runs are written.
        cores: the cores for the runs; default: those that this process may run on.
        max_parallel: the largest number of runs at the same time; None: limited by the slots only, or with
            `share_cores` by the number of cores.
        gpus: returns the GPUs for the runs; called when a run needs one.
        most: the largest number of cores in use at the same time; None: all `cores`.
        share_cores: every run may use all cores, and starts even if these are not free.
        slots: the slots to use instead of those that all sweeps on this machine share.
        refuse: raises UsageError for a run that must not be trained here.

    Raises:
        UsageError: the directory of the slots cannot be used.
    """

    def __init__(
        self,
        folder: str | Path,
        cores: Sequence[int] | None = None,
        max_parallel: int | None = None,
        *,
        gpus: Callable[[], Sequence[str]] = list,
        most: int | None = None,
        share_cores: bool = False,
        slots: Slots | None = None,
        estimate: Estimate | None = None,
        arrange: Arrange | None = None,
        refuse: Callable[[Run], None] | None = None,
    ) -> None:
        super().__init__(folder, estimate, arrange)
        if slots is None:
            slots = LockedSlots(cores, most=most, share_cores=share_cores, sweep=str(Path(folder).absolute()))
        self.slots = slots
        self.max_parallel = max_parallel
        self.gpus = gpus
        self._refuse = refuse
        self.backlog: Backlog[SlotJob] = Backlog()
        self.running: list[SlotJob] = []
        self._changes = 0
        self._examined: object = None  # changes and free amounts when no run could be backfilled
        self._looked_at = 0.0

    @property
    def active(self) -> bool:
        return bool(len(self.backlog) or self.running)

    @property
    def places(self) -> int:
        """The largest number of runs at the same time."""
        return count_places(self.max_parallel, self.slots.total, self.slots.share_cores)

    def compute_wants(self, task: RunTask) -> Amounts:
        """Return the cores, GPUs and places that a run needs: all cores and places if it must run alone."""
        alone = task.alone
        cores = 0 if self.slots.share_cores else self.slots.total if alone else min(task.cores, self.slots.total)
        return (cores, task.gpus, self.places if alone and self.places != UNLIMITED else 1)

    def reconcile(self, run: Run) -> None:
        if self._refuse is not None:
            self._refuse(run)
        super().reconcile(run)

    def submit_runs(self, tasks: Sequence[RunTask]) -> list[Job]:
        if not self.slots.gpus and any(task.gpus for task in tasks):
            self.slots.gpus = list(self.gpus())
        for task in tasks:
            if task.gpus > len(self.slots.gpus):
                raise UsageError(f"{task.run.name} wants {task.gpus} GPUs, of which there are {len(self.slots.gpus)}")
        jobs = {task.directory: SlotJob(self, task) for task in self.arrange(tasks)}
        self.backlog.add(Entry(job, job.wants, job.seconds) for job in jobs.values())
        self._changes += 1
        self.poll()
        return [jobs[task.directory] for task in tasks]

    def poll(self) -> None:
        now = time.monotonic()
        is_time_to_look = now >= self._looked_at + LOOK_S
        if is_time_to_look:
            self._looked_at = now
        for job in list(self.running):
            assert job.attempt is not None
            status = job.attempt.poll()
            if status is not None:
                self._note_end(job, status, job.attempt.reason, job.attempt.cause)
            elif is_time_to_look:
                self._notice_disturbance(job)
        self._dispatch(now)
        if is_time_to_look and (head := self.backlog.head) is not None:
            own = head.wants[2] > self._count_free_places()  # it waits for runs of this sweep
            others = [] if own else self.slots.list_others()
            head.item.waits_for = f"{', '.join(others)} to free cores" if others else None

    def _dispatch(self, now: float) -> None:
        """Start runs from the head of the queue while they get slots, then backfill."""
        while (head := self.backlog.head) is not None:
            if head.wants[2] > self._count_free_places():
                return
            if not self._try_to_start(head, first=True):
                break
        if head is None:
            return
        free = (*self.slots.available, self._count_free_places())
        if self._examined == (self._changes, free):
            return
        chosen = self.backlog.backfill(free, [(job.wants, job.ends) for job in self.running], now)
        if all([self._try_to_start(entry, first=False) for entry in chosen]):
            self._examined = (self._changes, free)

    def _count_free_places(self) -> int:
        return self.places - sum(job.wants[2] for job in self.running)

    def _try_to_start(self, entry: Entry[SlotJob], *, first: bool) -> bool:
        """Start a run if it gets slots; return whether it has started."""
        job = entry.item
        lease = self.slots.lease(job.wants[0], job.wants[1], first=first, run=job.task.run.name)
        if lease is None:
            return False
        self.backlog.remove(entry)
        self._changes += 1
        job.lease, job.waits_for, job.shared_cores = lease, None, lease.is_shared
        job.ends = None if job.seconds is None else time.monotonic() + job.seconds
        self.running.append(job)
        self._start(job, lease)
        return True

    def _start(self, job: SlotJob, lease: Lease) -> None:
        """Start an attempt at a run on its leased slots; if that is impossible, mark the job as failed."""
        try:
            job.attempt = self._start_attempt(job, lease)
            job.status = run_directory.RUNNING
        except OSError as error:  # a full disk, for example: other runs may start
            self._note_end(job, run_directory.FAILED, *explain_start_error(error))
            write_job_state(job)

    def _start_attempt(self, job: SlotJob, lease: Lease) -> Attempt:
        """Start an attempt at the job's run."""
        return MpirunAttempt(job.task, lease.cores, lease)

    def _notice_disturbance(self, job: SlotJob) -> None:
        """Record if another sweep may use the job's cores, because the job's times are then not comparable."""
        if job.lease is not None and not job.shared_cores and self.slots.is_disturbed(job.lease):
            job.shared_cores = True
            if job.attempt is not None:
                job.attempt.note_disturbance()

    def _note_end(self, job: SlotJob, status: str, reason: str | None, cause: str | None = None) -> None:
        self._notice_disturbance(job)
        job.finish(status, reason, cause)
        self.running.remove(job)
        self._changes += 1
        if job.lease is not None:
            self.slots.release(job.lease)

    def cancel(self, jobs: Sequence[Job], reason: str, grace_s: float = GRACE_S) -> None:
        asked = [job for job in jobs if isinstance(job, SlotJob)]
        waiting = {entry.item: entry for entry in self.backlog}
        for job in asked:
            if job in waiting:
                if waiting[job] is self.backlog.head:
                    self.slots.withdraw_ticket()
                self.backlog.remove(waiting[job])
                self._changes += 1
                job.waits_for = None
                job.finish(run_directory.CANCELLED, reason)
                write_job_state(job)
            elif job.attempt is not None:
                job.attempt.terminate(run_directory.CANCELLED, reason)
            elif job in self.running:  # the signal interrupted its start, which has been undone
                self._note_end(job, run_directory.CANCELLED, reason)
                write_job_state(job)
        deadline = time.monotonic() + grace_s
        for job in asked:
            if job in self.running and job.attempt is not None:
                job.attempt.stop(run_directory.CANCELLED, reason, max(0.0, deadline - time.monotonic()))
                status = job.attempt.status or run_directory.CANCELLED
                self._note_end(job, status, job.attempt.reason, job.attempt.cause)

    def preempt_all(self) -> None:
        self.cancel([entry.item for entry in self.backlog], "SIGUSR1 came before its turn")
        for job in self.running:
            if job.attempt is not None:
                job.attempt.preempt()

    def cancel_all(self, reason: str) -> None:
        self.cancel([*(entry.item for entry in self.backlog), *self.running], reason)
