"""The program of a SLURM job for one run: starts it by mpirun or srun, and writes its state.json."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import time

from gradsweep import failure_causes, run_directory
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import finish_attempt, write_state
from sweep.directory.sweep_directory import LOCK
from sweep.executors.slurm_job.base import AllocatedJob, explain_lock
from sweep.executors.slurm_job.job_signals import JobSignals
from sweep.provenance import slurm_nodes
from sweep.settings.slurm_launcher import parse_slurm_options
from sweep.system.lease import Lease
from sweep.system.slurm_allocation import Allocation

KILL_AFTER_S = 20.0  # TERM comes; SLURM kills the job 30 s later, unless a site has it otherwise
POLL_S = 0.1
SPREAD_S = 1.0
"""In which the signals that SLURM sends to all processes of a job have come to all of them."""


class SingleRunJob(AllocatedJob):
    """Trains one run in this job's allocation."""

    def __init__(self, task: RunTask, allocation: Allocation, signals: JobSignals) -> None:
        super().__init__(allocation, signals, parse_slurm_options(task.launcher))
        self.task, self.run = task, task.run

    def compute(self) -> int:
        lock = self._lock(self.run.path(LOCK))
        if lock is None:
            print(f"{self.run.name}: {explain_lock(self.run.path(LOCK))}", file=sys.stderr)
            return 1
        with lock:
            self._reconcile(self.run)
            if self.run.result() is not None:
                print(f"{self.run.name}: has its result already")
                return 0
            if not self._has_requeues_left(self.run):
                self._give_up(self.run)
                return 1
            return self._compute_attempt()

    def _compute_attempt(self) -> int:
        try:
            cores = self.allocation.cores
            lease = Lease(tuple(cores), is_shared=self.allocation.shared)
            nodes = slurm_nodes.describe_job(self.task.command, self.allocation)
            task = dataclasses.replace(self.task, origin={**self.task.origin, **nodes})
            attempt = MpirunAttempt(task, cores, lease, self.allocation, self._await_end_by_slurm)
        except OSError as error:  # a full disk, or no such program on this node
            reason = f"could not be started on {socket.gethostname()}: {error}"
            with contextlib.suppress(OSError):
                write_state(self.run, status=run_directory.FAILED, reason=reason)
            print(reason, file=sys.stderr)
            return 1
        try:
            self._watch(attempt)
        finally:
            attempt.stop(run_directory.CANCELLED, "its job failed")
        return self._conclude(attempt)

    def _watch(self, attempt: MpirunAttempt) -> None:
        """Poll the attempt until it ends, and pass signals on."""
        deadline: float | None = None
        while attempt.poll() is None:
            if self._why is None:
                self.signals.accept_preemption_notice(self.allocation)
            if self.signals.must_end:
                if deadline is None:
                    deadline = time.monotonic() + KILL_AFTER_S
                    attempt.terminate(run_directory.CANCELLED, self.signals.explain_end(self.allocation)[0])
                if time.monotonic() > deadline:
                    attempt.stop(run_directory.CANCELLED, "SLURM ended it", 0.0)
            elif (self.signals.must_stop or self.signals.must_move) and self._why is None:
                attempt.preempt()
                self._why = self.signals.explain_stop(self.allocation, self.options)
            self._show_life([self.run])
            time.sleep(POLL_S)

    def _await_end_by_slurm(self) -> tuple[str, str, str | None] | None:
        """Return status, reason and cause if SLURM ends the job, else None; wait a little: mpirun may hear it first."""
        deadline = time.monotonic() + SPREAD_S
        while not self.signals.must_end and time.monotonic() < deadline:
            time.sleep(POLL_S / 2)
        if not self.signals.must_end:
            return None
        return (run_directory.CANCELLED, *self.signals.explain_end(self.allocation))

    def _conclude(self, attempt: MpirunAttempt) -> int:
        """Write the outcome of an attempt, and return the exit status."""
        status, reason, cause, code = attempt.status, attempt.reason, attempt.cause, attempt.exit_code
        if self.run.result() is not None:
            return 0
        if self.signals.must_end and status in (run_directory.FAILED, run_directory.CANCELLED):  # mpirun got TERM, too
            status, (reason, cause) = run_directory.CANCELLED, self.signals.explain_end(self.allocation)
            finish_attempt(self.run, status, reason, code, cause)
        elif self._why is not None and (status == run_directory.PREEMPTED or cause == failure_causes.KILLED):
            # a rank that does not listen yet is killed by the signal: there is nothing to save either
            saved = "saved" if status == run_directory.PREEMPTED and not attempt.unsaved else "before it had begun"
            status, reason = run_directory.PREEMPTED, f"{self._why}; {saved}"
            finish_attempt(self.run, status, reason, code)
        print(f"{self.run.name}: {status}: {reason}", file=sys.stderr)
        if status != run_directory.PREEMPTED or self.signals.must_stop:
            return 0 if status == run_directory.PREEMPTED else 1
        if not self._has_requeues_left(self.run):
            self._give_up(self.run)
            return 1
        if self.signals.must_end:  # it is ended already; if SLURM queues it again, it does so by itself
            finish_attempt(self.run, status, reason, code, failure_causes.LOST)
            return 1
        return 0 if self._requeue([self.run], code) else 1
