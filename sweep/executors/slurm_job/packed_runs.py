"""The program of a SLURM job that trains many runs (sweep.pack) in MPI worlds.

Right before a run begins, the job claims it: the run must still belong to this job (shares.py), and the job holds its
lock while it trains it. Preempted runs, and those that have not begun, are trained when SLURM starts the job again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep import failure_causes, files, run_directory
from gradsweep.disk.file_lock import FileLock
from gradsweep.run_directory import Run
from sweep.attempts.run_task import load_task
from sweep.directory import completion
from sweep.directory.run_state import finish_attempt
from sweep.directory.sweep_directory import LOCK
from sweep.executors.local import SlotJob
from sweep.executors.slurm.shares import OPEN, belongs_to, explain_removal
from sweep.executors.slurm_job.allocation_executor import AllocatedExecutor
from sweep.executors.slurm_job.base import PATIENCE_S, AllocatedJob, explain_lock
from sweep.executors.slurm_job.job_signals import JobSignals
from sweep.provenance import slurm_nodes
from sweep.settings.slurm_launcher import SlurmOptions, parse_slurm_options
from sweep.system.slurm_allocation import Allocation

POLL_S = 0.03
CHECK_S = 1.0  # between two checks whether runs were removed from this job


class PackedRunsJob(AllocatedJob):
    """Trains the runs of one task of a SLURM job array.

    Args:
        batch: the file that describes the array.
        index: the index of the task.
        share: the names of the task's runs.
    """

    def __init__(
        self, batch: Path, index: int, share: Sequence[str], allocation: Allocation, signals: JobSignals
    ) -> None:
        super().__init__(allocation, signals, SlurmOptions())
        self.batch, self.index = batch, index
        self.folder = batch.parent / f"{batch.stem}_{index}"
        self.runs = [Run(batch.parent.parent / run_directory.RUNS / name) for name in share]
        self._locks: dict[Path, FileLock] = {}
        self._refused: dict[Path, float] = {}  # since when another job has had a run's lock
        self._ours: list[SlotJob] = []  # that have begun here
        self._next_check = 0.0
        self._lost_node = False

    def compute(self) -> int:
        self.folder.mkdir(exist_ok=True)
        lock = self._lock(self.folder / LOCK)
        if lock is None:
            print(explain_lock(self.folder / LOCK, "these runs"), file=sys.stderr)
            return 1
        with lock:
            jobs = (files.read_json(run.path(run_directory.JOB)) or {} for run in self._list_left())
            tasks = [load_task(job["task"]) for job in jobs]
            if not tasks:
                print("nothing is left to do")
                return 0
            self.options = parse_slurm_options(tasks[0].launcher)
            tasks.sort(key=lambda task: not task.run.state()["attempts"])  # runs that have begun go on first
            nodes = slurm_nodes.describe_job(tasks[0].command, self.allocation)  # once, before any rank runs
            tasks = [dataclasses.replace(task, origin={**task.origin, **nodes}) for task in tasks]
            executor = AllocatedExecutor(self.folder, self.allocation, self.options, self._claim, self._release)
            try:
                executor.submit_runs(tasks)
                self._drive(executor)
            finally:
                executor.forget()
                executor.cancel_all("its job failed")
            return self._conclude()

    def _list_left(self) -> list[Run]:
        """Return the runs that this job probably still has to train: another job may hold the lock of some."""
        mine = [run for run in self.runs if belongs_to(run, self.batch, self.index)]
        for run in mine:
            attempts = run.state()["attempts"]
            if attempts and attempts[-1].get("job") == self.allocation.job:  # before SLURM started this job again
                self._reconcile(run)
        return [run for run in mine if run.status() in OPEN and not completion.is_complete(run)]

    def _claim(self, run: Run) -> bool | None:
        """Lock a run, and return True if this job may begin it, False if it must not, None if that is not known yet."""
        if self._lost_node or self._why is not None:
            return None
        if not belongs_to(run, self.batch, self.index):
            print(f"{run.name}: {explain_removal(run)}")
            return False
        if run.directory not in self._locks:
            lock = self._lock(run.path(LOCK), patience_s=0.0)
            since = self._refused.setdefault(run.directory, time.monotonic())
            if lock is None and time.monotonic() < since + PATIENCE_S:
                return None
            if lock is None:
                print(f"{run.name}: {explain_lock(run.path(LOCK))}", file=sys.stderr)
                return False
            self._locks[run.directory] = lock
        again = run.status() in OPEN
        self._reconcile(run)  # what another job has left counts as failed, and goes on
        again = again and not completion.is_complete(run)
        if again and not self._has_requeues_left(run):
            self._give_up(run)
            again = False
        if not again:
            self._locks.pop(run.directory).close()
        return again

    def _release(self, job: SlotJob) -> None:
        """Write the status of a run at the end of the job, and unlock the run."""
        self._ours.append(job)
        run = job.task.run
        if self._why is not None and (job.status == run_directory.PREEMPTED or job.cause == failure_causes.KILLED):
            # a rank that does not listen yet is killed by the signal: there is nothing to save either
            saved = job.attempt is not None and (job.attempt.directory / run_directory.STOPPED).exists()
            how = "saved" if saved else "before it had begun"
            job.finish(run_directory.PREEMPTED, f"{self._why}; {how}", job.cause)
            with contextlib.suppress(OSError):
                finish_attempt(run, job.status, job.reason, None if job.attempt is None else job.attempt.exit_code)
        elif job.status == run_directory.CANCELLED and job.attempt is not None and self.signals.must_end:
            reason, cause = self.signals.explain_end(self.allocation)
            if cause is not None and job.reason == reason:
                with contextlib.suppress(OSError):
                    finish_attempt(run, job.status, reason, job.attempt.exit_code, cause)
        self._lost_node |= job.status == run_directory.PREEMPTED and job.cause == failure_causes.LOST
        print(f"{run.name}: {job.status}{f': {job.reason}' if job.reason else ''}", flush=True)
        if run.directory in self._locks:
            self._locks.pop(run.directory).close()

    def _drive(self, executor: AllocatedExecutor) -> None:
        """Poll the executor until all runs have ended, and react to signals."""
        while executor.active:
            if self._why is None:
                self.signals.accept_preemption_notice(self.allocation)
            if self.signals.must_end:
                executor.forget()
                executor.cancel_all(self.signals.explain_end(self.allocation)[0])
                return
            if (self.signals.must_stop or self.signals.must_move) and self._why is None:
                self._why = self.signals.explain_stop(self.allocation, self.options)
                if self.signals.must_move and not self.signals.must_stop:
                    executor.forget()
                executor.preempt_all()
            elif self._lost_node and self._why is None:
                self._why = "a node was lost"
                executor.forget()
                executor.preempt_all()
            executor.poll()
            self._end_removed(executor)
            self._show_life(job.task.run for job in executor.running)
            time.sleep(POLL_S)

    def _end_removed(self, executor: AllocatedExecutor) -> None:
        """End runs that were removed from this job."""
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + CHECK_S
        for job in list(executor.running):
            run = job.task.run
            if run.directory.exists() and not belongs_to(run, self.batch, self.index):
                executor.cancel([job], explain_removal(run))

    def _conclude(self) -> int:
        """Make SLURM queue the job again if runs are left, and return the exit status."""
        fine = all(job.status in (run_directory.DONE, run_directory.PREEMPTED) for job in self._ours)
        if self.signals.must_end or not (self.signals.must_move or self._lost_node) or self.signals.must_stop:
            return int(not fine or self.signals.must_end)
        for run in self._list_left():
            if not self._has_requeues_left(run):
                self._give_up(run)
                fine = False
        left = self._list_left()
        if not left:
            return int(not fine)
        return 0 if self._requeue(left, None) else 1
