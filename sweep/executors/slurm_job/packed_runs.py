"""What a SLURM job does that serves many runs (sweep.pack): trains its share of them in an MPI world.

Each run is claimed right before it begins: it must still be this allocation's (shares.py), and its lock is kept while
it is trained. What the job is sent away from or has not begun is gone on with when SLURM has queued it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gradsweep import failure_causes, files, run_directory
from gradsweep.file_lock import FileLock
from gradsweep.run_directory import Run
from sweep.attempts.run_task import load_task
from sweep.directory import completion
from sweep.directory.run_state import finish_attempt
from sweep.directory.sweep_directory import LOCK
from sweep.executors.local import SlotJob
from sweep.executors.slurm.shares import OPEN, belongs_to, why_out
from sweep.executors.slurm_job.allocation_executor import AllocatedExecutor
from sweep.executors.slurm_job.preemption import (
    PATIENCE_S,
    JobSignals,
    elsewhere,
    give_up,
    hold,
    not_again,
    preemptions,
    settle,
)
from sweep.provenance import slurm_nodes
from sweep.settings.slurm_launcher import SlurmOptions, options_of
from sweep.system.slurm_allocation import Allocation

POLL_S = 0.03
LOOK_S = 1.0  # between two looks whether runs have been taken out


class ShareInAllocation:
    """Computes the share of one task of an array.

    Args:
        batch: the file that tells of the array.
        index: of the task.
        share: names of its runs.
        allocation: what SLURM gives.
        signals: which are listened to already.
    """

    def __init__(
        self, batch: Path, index: int, share: Sequence[str], allocation: Allocation, signals: JobSignals
    ) -> None:
        self.batch, self.index, self.allocation, self.signals = batch, index, allocation, signals
        self.folder = batch.parent / f"{batch.stem}_{index}"
        self.runs = [Run(batch.parent.parent / run_directory.RUNS / name) for name in share]
        self.options = SlurmOptions()
        self._locks: dict[Path, FileLock] = {}
        self._refused: dict[Path, float] = {}  # since when another job has had a run's lock
        self._ours: list[SlotJob] = []  # that have begun here
        self._next_beat = self._next_look = 0.0
        self._why: str | None = None
        self._lost_node = False

    def compute(self) -> int:
        """Take the runs to their end, or as far as this job goes; returns the exit status."""
        self.folder.mkdir(exist_ok=True)
        held = hold(self.folder / LOCK, self.signals.end)
        if held is None:
            print(elsewhere(self.folder / LOCK, "these runs"), file=sys.stderr)
            return 1
        with held:
            tasks = [load_task((files.read_json(run.path(run_directory.JOB)) or {})["task"]) for run in self._left()]
            if not tasks:
                print("nothing is left to do")
                return 0
            options = options_of(tasks[0].launcher)
            assert isinstance(options, SlurmOptions)
            self.options = options
            tasks.sort(key=lambda task: not task.run.state()["attempts"])  # what has begun is to go on first
            found = slurm_nodes.describe_job(tasks[0].command, self.allocation)  # once, before any rank is here
            tasks = [dataclasses.replace(task, origin={**task.origin, **found}) for task in tasks]
            executor = AllocatedExecutor(self.folder, self.allocation, options, self._claim, self._release)
            try:
                executor.submit_runs(tasks)
                self._drive(executor)
            finally:
                executor.forget()
                executor.cancel_all("its job failed")
            return self._conclude()

    def _left(self) -> list[Run]:
        """The runs that are still to be computed here, as far as is known before they are claimed."""
        mine = [run for run in self.runs if belongs_to(run, self.batch, self.index)]
        for run in mine:
            attempts = run.state()["attempts"]
            if attempts and attempts[-1].get("job") == self.allocation.job:  # of this job before SLURM started it again
                settle(run, self.allocation.job)
        return [run for run in mine if run.status() in OPEN and not completion.is_complete(run)]

    def _claim(self, run: Run) -> bool | None:
        """Whether a run may begin here; it is then ours. None: another job still has it, or nothing may begin now."""
        if self._lost_node or self._why is not None:
            return None
        if not belongs_to(run, self.batch, self.index):
            print(f"{run.name}: {why_out(run)}")
            return False
        if run.directory not in self._locks:
            lock = hold(run.path(LOCK), self.signals.end, 0.0)
            since = self._refused.setdefault(run.directory, time.monotonic())
            if lock is None and time.monotonic() < since + PATIENCE_S:
                return None
            if lock is None:
                print(f"{run.name}: {elsewhere(run.path(LOCK))}", file=sys.stderr)
                return False
            self._locks[run.directory] = lock
        again = run.status() in OPEN
        settle(run, self.allocation.job)  # what another job has left counts as failed, and is gone on with
        again = again and not completion.is_complete(run)
        if again and preemptions(run, self.allocation.job) > self.options.requeues:
            print(f"{run.name}: {give_up(run, self.allocation.job, self.options)}", file=sys.stderr)
            again = False
        if not again:
            self._locks.pop(run.directory).close()
        return again

    def _release(self, job: SlotJob) -> None:
        self._ours.append(job)
        run = job.task.run
        if self._why is not None and (job.status == run_directory.PREEMPTED or job.cause == failure_causes.KILLED):
            # a rank that does not listen yet is killed by the signal: there is nothing to save either
            saved = job.attempt is not None and (job.attempt.directory / run_directory.STOPPED).exists()
            job.status = run_directory.PREEMPTED
            job.reason = f"{self._why}; {'saved' if saved else 'before it had begun'}"
            with contextlib.suppress(OSError):
                finish_attempt(run, job.status, job.reason, None if job.attempt is None else job.attempt.exit_code)
        elif job.status == run_directory.CANCELLED and job.attempt is not None and self.signals.end():
            reason, cause = self.signals.why_ended(self.allocation)
            if cause is not None and job.reason == reason:
                with contextlib.suppress(OSError):
                    finish_attempt(run, job.status, reason, job.attempt.exit_code, cause)
        self._lost_node |= job.status == run_directory.PREEMPTED and job.cause == failure_causes.LOST
        print(f"{run.name}: {job.status}{f': {job.reason}' if job.reason else ''}", flush=True)
        if run.directory in self._locks:
            self._locks.pop(run.directory).close()

    def _drive(self, executor: AllocatedExecutor) -> None:
        """Until all has ended, or what came by signal has been heeded."""
        while executor.active:
            if self._why is None:
                self.signals.heed_announcement(self.allocation)
            if self.signals.end():
                executor.forget()
                executor.cancel_all(self.signals.why_ended(self.allocation)[0])
                return
            if (self.signals.stop() or self.signals.leave()) and self._why is None:
                self._why = self.signals.why(self.allocation, self.options)
                if self.signals.leave() and not self.signals.stop():
                    executor.forget()
                executor.preempt_all()
            elif self._lost_node and self._why is None:
                self._why = "a node was lost"
                executor.forget()
                executor.preempt_all()
            executor.poll()
            self._look(executor)
            self._beat(executor)
            time.sleep(POLL_S)

    def _look(self, executor: AllocatedExecutor) -> None:
        """End what has been taken out of this allocation."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_S
        for job in list(executor.running):
            run = job.task.run
            if run.directory.exists() and not belongs_to(run, self.batch, self.index):
                executor.cancel([job], why_out(run))

    def _beat(self, executor: AllocatedExecutor) -> None:
        """Show that this job is alive, in the times of its runs' state.json."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self.options.poll_s
            for job in executor.running:
                with contextlib.suppress(OSError):
                    os.utime(job.task.run.path(run_directory.STATE))

    def _conclude(self) -> int:
        """Have SLURM queue the job again where runs are left; returns the exit status."""
        fine = all(job.status in (run_directory.DONE, run_directory.PREEMPTED) for job in self._ours)
        if self.signals.end() or not (self.signals.leave() or self._lost_node) or self.signals.stop():
            return int(not fine or self.signals.end())
        for run in [run for run in self._left() if preemptions(run, self.allocation.job) > self.options.requeues]:
            print(f"{run.name}: {give_up(run, self.allocation.job, self.options)}", file=sys.stderr)
            fine = False
        left = self._left()
        refused = self.allocation.requeue() if left else None
        if refused is None:
            return int(not fine and not left)
        for run in left:
            if run.status() == run_directory.PREEMPTED:
                not_again(run, refused, None)
        return 1
