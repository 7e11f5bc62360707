"""Trains runs as SLURM jobs: submits them, watches the runs' files, and adopts jobs of earlier launchers.

A job writes state.json of its runs itself (sweep/executors/slurm_job/). The executor watches the modification times of
these files, and asks SLURM only about jobs that do not write: waiting jobs, and those without a sign of life.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk.regular_files import stamp_file
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.run_task import RunTask
from sweep.directory import completion
from sweep.directory.run_state import reconcile_abandoned
from sweep.directory.scheduler_job import note_waiting
from sweep.executors.base import Arrange, Estimate, Job, RunExecutor
from sweep.executors.slurm import queue
from sweep.executors.slurm.batch import find_batch_task, group_tasks, submit
from sweep.executors.slurm.cancellation import Cancellations
from sweep.executors.slurm.job import SlurmJob
from sweep.executors.slurm.queue import ListedJob, SlurmSilent
from sweep.executors.slurm.shares import KEEPING, find_in_shared_jobs, remove_from_jobs, share_out
from sweep.executors.slurm.submitted_jobs import SubmittedJobs
from sweep.system.processes import GRACE_S

LOOK_S = 0.5  # between two checks of the files
GONE_S = 3.0  # until what a job has written at its end can be read here
SILENT = 3.0  # times poll_s without a sign of life, after which SLURM is asked
MOST_RARE = 10  # times poll_s between two questions to SLURM, while nothing changes
ENDING_S = 90.0  # SLURM's KillWait and an epilog


class SlurmRunExecutor(RunExecutor):
    """Trains runs in job arrays of SLURM.

    Args:
        folder: the sweep's directory; batch files and the jobs' own output are written to slurm/ in it.
        poll_s: the least number of seconds between two queries to SLURM.
        packed: each job trains many runs (shares.py).
    """

    can_leave = True

    def __init__(
        self,
        folder: str | Path,
        poll_s: float = 30.0,
        *,
        packed: bool = False,
        estimate: Estimate | None = None,
        arrange: Arrange | None = None,
    ) -> None:
        queue.require_slurm()
        super().__init__(folder, estimate, arrange)
        self.poll_s, self.packed = poll_s, packed
        self.jobs: list[SlurmJob] = []
        self._arrays: set[str] = set()  # submitted by this process, so that all their tasks are in `jobs`
        self.trouble: str | None = None
        """SLURM's last error message, while it does not answer."""
        self._cancellations = Cancellations(poll_s)
        self._known = SubmittedJobs()  # of earlier launchers
        self._look_at = self._ask_at = 0.0
        self._pause = poll_s
        self._noticed: dict[str, tuple[str, str | None]] = {}

    @property
    def active(self) -> bool:
        return any(not job.ended for job in self.jobs)

    # jobs of earlier launchers

    def reconcile(self, run: Run) -> None:
        if completion.is_complete(run):
            return
        attempts = run.state()["attempts"]
        if find_batch_task(run) is None or (
            attempts and attempts[-1].get("job") is None and run.status() == run_directory.RUNNING
        ):
            reconcile_abandoned(run)  # it was computed on this machine
            return
        try:
            if self._known.find_living(run) is None:
                self._known.reconcile(run)
        except SlurmSilent as silent:
            raise UsageError(
                f"hydra/launcher=slurm: {silent}; valid is a SLURM that answers, to learn what became of the jobs of "
                f"this sweep"
            ) from None

    # submission

    def submit_runs(self, tasks: Sequence[RunTask]) -> list[Job]:
        if not tasks:  # nothing that would put off the next question
            return []
        jobs: dict[str, SlurmJob] = {}
        submitted: list[str] = []
        whose = ""  # whose request is being submitted, if there are several
        # SLURM may still be tidying up, or the job serves others: this is another try
        over = {(job.task.directory, job.slurm_id) for job in self.jobs if job.ended}
        try:
            for task in tasks:
                if (id := self._known.find_living(task.run)) is not None and (task.directory, id) not in over:
                    jobs[task.directory] = SlurmJob(self, task, id)
                    self.jobs.append(jobs[task.directory])
            new = self.arrange([task for task in tasks if task.directory not in jobs])
            share = functools.partial(share_out, estimate=self.estimate)
            limit = queue.read_array_limit() if new else 0
            groups = list(group_tasks(new, limit, share if self.packed else None))
            for request, shares in groups:
                whose = f" for {shares[0][0].run.name}" if len(groups) > 1 else ""
                batch = submit(self.folder, request, shares, packed=self.packed)
                submitted.append(str(batch.id))
                for index, task in ((index, task) for index, share in enumerate(shares) for task in share):
                    jobs[task.directory] = SlurmJob(self, task, f"{batch.id}_{index}")
        except BaseException as error:
            with contextlib.suppress(SlurmSilent):
                queue.scancel(submitted)
            if isinstance(error, Exception):  # not an interruption: what was there goes on
                adopted = list(jobs.values())
                self.jobs = [job for job in self.jobs if job not in adopted]
            if isinstance(error, SlurmSilent):
                raise UsageError(f"hydra/launcher=slurm: {error}{whose}; nothing was submitted") from None
            raise
        self._known.forget()
        self._arrays |= set(submitted)
        self.jobs += [jobs[task.directory] for task in new]
        self._look_at, self._pause = 0.0, self.poll_s
        self._ask_at = time.monotonic() + self.poll_s
        self._publish_waiting()
        return [jobs[task.directory] for task in tasks]

    def leave(self) -> None:
        """Leave the jobs running; the next launcher of the sweep adopts them."""
        self.jobs = []
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Write waiting.json for other shells: which runs wait for SLURM, and why."""
        waiting = [job for job in self.jobs if job.status == run_directory.PENDING]
        noticed = {job.task.run.name: (job.slurm_id, job.why) for job in waiting}
        if noticed != self._noticed:
            self._noticed = noticed
            note_waiting(self.folder, noticed)

    # watching

    def poll(self) -> None:
        now = time.monotonic()
        if self._cancellations.poll():
            self._ask_at = min(self._ask_at, now + GONE_S)
        if now < self._look_at:
            return
        waiting = [job for job in self.jobs if not job.ended]
        self._look_at = now + max(LOOK_S, len(waiting) / 1000)
        for job in waiting:
            self._read_state(job, now)
        if now >= self._ask_at and self._find_silent(waiting, now):
            self._ask_slurm([job for job in waiting if not job.ended])
        self._publish_waiting()

    def _find_silent(self, jobs: Sequence[SlurmJob], now: float) -> list[SlurmJob]:
        """Return the jobs about which to ask SLURM: they wait, are to end, or have shown no sign of life for long.

        For a job with many runs, a sign of life of any of them is enough.
        """
        last = now - SILENT * self.poll_s
        running = [job for job in jobs if job.status == run_directory.RUNNING and job.cancel_reason is None]
        alive = {job.slurm_id for job in running if job.alive_at >= last}
        return [job for job in jobs if not job.ended and job.slurm_id not in alive]

    def _read_state(self, job: SlurmJob, now: float, *, force: bool = False) -> None:
        """Read a run's state.json if it has changed since the last time."""
        run = job.task.run
        stamp = stamp_file(run.path(run_directory.STATE))
        if stamp is None or (stamp == job.stamp and not force):
            return
        try:
            state = run.state()
        except OSError:  # it was replaced meanwhile (ESTALE of a network file system): the next poll reads it
            return
        if stamp != job.stamp:
            job.stamp, job.alive_at = stamp, now
        last = state["attempts"][-1] if state["attempts"] else {}
        status, mine = state["status"], last.get("job") == job.slurm_id
        job.shared_cores = mine and state.get("shared_cores") is True
        if status == run_directory.RUNNING and mine:
            number = last.get("number")
            if job.number not in (None, number):  # preempted and started again between two checks
                self._report_requeued(job, state["attempts"][-2].get("reason") if len(state["attempts"]) > 1 else None)
            job.status, job.ended_as, job.number, job.reported = run_directory.RUNNING, None, number, False
        elif status == run_directory.CANCELLED and self.packed and find_batch_task(run) is None:  # removed from its job
            job.finish(status, state.get("reason"))
        elif status in (run_directory.PREEMPTED, run_directory.CANCELLED) and mine:
            # SLURM may have queued it again; only SLURM knows
            job.status, job.number = run_directory.PENDING, last.get("number")
            job.ended_as = (status, state.get("reason"))
            self._ask_at = min(self._ask_at, now + GONE_S)
        elif status not in KEEPING:
            job.finish(status, state.get("reason"), last.get("cause"))

    def _ask_slurm(self, jobs: Sequence[SlurmJob]) -> None:
        """Ask SLURM about jobs, and record the end of those that it no longer has; do nothing without an answer."""
        now = time.monotonic()
        try:
            listed = queue.list_jobs()
            self.trouble = None
        except SlurmSilent as silent:
            self.trouble = str(silent)
            self._ask_at = now + self.poll_s
            return
        before = [(job.status, job.waits_for, job.gone_since) for job in jobs]
        gone = [job for job in jobs if not (job.slurm_id in listed and listed[job.slurm_id].alive)]
        for job in jobs:
            if job not in gone:
                self._note_listed(job, listed[job.slurm_id])
        for job in gone:
            job.gone_since = job.gone_since or now
            self._read_state(job, now, force=True)
        over = [job for job in gone if not job.ended and (job.ended_as or now - (job.gone_since or now) >= GONE_S)]
        forgotten = [job.slurm_id for job in over if job.slurm_id not in listed]
        last = {**(queue.read_accounting(forgotten) if forgotten else {}), **listed}
        for job in over:
            try:
                job.conclude(last.get(job.slurm_id))
            except OSError as error:  # of the run's files
                job.finish(run_directory.FAILED, str(error))
        changed = before != [(job.status, job.waits_for, job.gone_since) for job in jobs]
        self._pause = self.poll_s if changed else min(2 * self._pause, MOST_RARE * self.poll_s)
        waits = any(not job.ended and (job.gone_since is not None or job.is_ending) for job in jobs)
        self._ask_at = time.monotonic() + (min(GONE_S, self.poll_s) if waits else self._pause)

    def _note_listed(self, job: SlurmJob, listed: ListedJob) -> None:
        job.gone_since = None
        job.alive_at = time.monotonic()
        waits = listed.state != "SUSPENDED" and listed.waits_for is not None
        job.why = listed.waits_for
        job.waits_for = f"SLURM ({job.why})" if waits else None
        if waits and job.status == run_directory.RUNNING:  # queued again: a node failed, or it was preempted
            job.status = run_directory.PENDING
            self._report_requeued(job, "SLURM ended it")
        elif waits and job.ended_as is not None:
            self._report_requeued(job, job.ended_as[1])

    def _report_requeued(self, job: SlurmJob, reason: str | None) -> None:
        """Add to `news`, once for each preemption, that a job was preempted and is queued again."""
        if not job.reported:
            job.reported = True
            self.news.append((job, job.number, f"{reason or 'sent away'}; queued again"))

    # cancellation

    def cancel(self, jobs: Sequence[Job], reason: str, grace_s: float = GRACE_S) -> None:
        within_s = grace_s + ENDING_S if grace_s > 0 else 0.0
        try:
            asked = self._select_to_cancel(jobs, reason, within_s)
            queue.scancel(self._merge_arrays([job.slurm_id for job in asked]))
            if asked and within_s:
                self._wait_for_end(asked, time.monotonic() + within_s)
        except SlurmSilent as silent:
            whole = [job for job in jobs if isinstance(job, SlurmJob) and find_batch_task(job.task.run) is not None]
            asked = [job for job in whole if not job.ended]
            print(
                f"SLURM does not answer ({silent}): jobs may go on. To end them:\n"
                f"  scancel {' '.join(self._merge_arrays([job.slurm_id for job in asked]))}",
                file=sys.stderr,
            )
        self._publish_waiting()

    def ask_to_end(self, jobs: Sequence[Job], reason: str) -> None:
        self._cancellations.request(
            self._merge_arrays([job.slurm_id for job in self._select_to_cancel(jobs, reason, 0.0)])
        )

    def _select_to_cancel(self, jobs: Sequence[Job], reason: str, within_s: float) -> list[SlurmJob]:
        """Return the jobs to cancel by scancel; if a run's job also has other runs, only remove the run from it."""
        asked = [job for job in jobs if isinstance(job, SlurmJob) and not job.ended]
        for job in asked:
            job.cancel_reason = reason
        out = set(find_in_shared_jobs([job.task.run for job in asked]))
        remove_from_jobs(out, reason, within_s)
        for job in asked:
            if job.task.run in out:
                self._read_state(job, time.monotonic(), force=True)
        return [job for job in asked if job.task.run not in out]

    def _merge_arrays(self, ids: Sequence[str]) -> list[str]:
        """Return ids for scancel: the id of an array if `ids` has all its remaining tasks, else those of the tasks."""
        arrays: dict[str, list[str]] = {}
        for id in dict.fromkeys(ids):
            arrays.setdefault(id.partition("_")[0], []).append(id)
        others = {job.slurm_id.partition("_")[0] for job in self.jobs if not job.ended and job.slurm_id not in ids}
        whole = self._arrays - others
        return [word for array, members in arrays.items() for word in ([array] if array in whole else members)]

    def _wait_for_end(self, jobs: Sequence[SlurmJob], deadline: float) -> None:
        pause = 0.2
        left = list(jobs)
        while left and time.monotonic() < deadline:
            listed = queue.list_jobs()
            for job in list(left):
                entry = listed.get(job.slurm_id)
                if entry is None or not entry.alive:
                    self._read_state(job, time.monotonic(), force=True)
                    if not job.ended:
                        job.conclude(entry)
                    left.remove(job)
            if left:
                time.sleep(pause)
                pause = min(2.0, 1.5 * pause)

    def preempt_all(self) -> None:
        for job in self.jobs:
            if not job.ended:
                self._read_state(job, time.monotonic())  # it may have begun since the last poll
        running = [job for job in self.jobs if job.status == run_directory.RUNNING]
        self.cancel([job for job in self.jobs if job.status == run_directory.PENDING], "SIGUSR1 came before its turn")
        with contextlib.suppress(SlurmSilent):
            # the batch scripts, not their steps
            queue.scancel(list(dict.fromkeys(job.slurm_id for job in running)), "--signal=USR1", "--batch")

    def cancel_all(self, reason: str) -> None:
        self.cancel(self.jobs, reason)
