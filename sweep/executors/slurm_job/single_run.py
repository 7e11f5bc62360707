"""`python -m sweep.executors.slurm_job.single_run BATCH`: what a SLURM job does: computes the run that its place in
the array stands for.

Where that stands for many runs (sweep.pack), share_job.py does. It takes the place of the batch script's shell, so that
SLURM's signals come here: USR2 some time before the time limit and at a preemption, USR1 from the launcher, TERM from
scancel. It writes the run's state.json; the launcher may have gone. Exit status 0 when the run has a result or will go
on in another job, else 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
import time
from pathlib import Path

from gradsweep import disk_errors, failure_causes, files, run_directory
from gradsweep.run_directory import Run
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask, load_task
from sweep.directory.run_state import finish_attempt, write_state
from sweep.directory.sweep_directory import LOCK
from sweep.executors.slurm_job.preemption import JobSignals, elsewhere, give_up, hold, not_again, preemptions, settle
from sweep.provenance import slurm_nodes
from sweep.settings.slurm_launcher import options_of
from sweep.system.lease import Lease
from sweep.system.slurm_allocation import Allocation

KILL_AFTER_S = 20.0  # TERM comes; SLURM kills the job 30 s later, unless a site has it otherwise
POLL_S = 0.1
SPREAD_S = 1.0
"""In which the signals that SLURM sends to all processes of a job have come to all of them."""


class RunInAllocation:
    """Computes one run in the allocation around us.

    Args:
        task: the run.
        allocation: what SLURM gives.
        signals: which are listened to already.
    """

    def __init__(self, task: RunTask, allocation: Allocation, signals: JobSignals) -> None:
        self.task, self.run, self.allocation, self.signals = task, task.run, allocation, signals
        self.options = options_of(task.launcher)
        self._next_beat = 0.0
        self._why: str | None = None

    def compute(self) -> int:
        """Take the run to its end, or as far as this job goes; returns the exit status."""
        with contextlib.ExitStack() as stack:
            held = hold(self.run.path(LOCK), self.signals.end)
            if held is None:
                print(f"{self.run.name}: {elsewhere(self.run.path(LOCK))}", file=sys.stderr)
                return 1
            stack.enter_context(held)
            settle(self.run, self.allocation.job)
            if self.run.result() is not None:
                print(f"{self.run.name}: has its result already")
                return 0
            if preemptions(self.run, self.allocation.job) > self.options.requeues:
                return self._give_up()
            return self._attempt()

    def _attempt(self) -> int:
        try:
            cores = self.allocation.cores
            lease = Lease(tuple(cores), is_shared=self.allocation.shared)
            attempt = MpirunAttempt(self._seen(), cores, lease, self.allocation)
        except OSError as error:  # a full disk, or no such program on this node
            reason = f"could not be started on {socket.gethostname()}: {error}"
            with contextlib.suppress(OSError):
                write_state(self.run, status=run_directory.FAILED, reason=reason)
            print(reason, file=sys.stderr)
            return 1
        attempt.told = self._told
        try:
            self._watch(attempt)
        finally:
            attempt.stop(run_directory.CANCELLED, "its job failed")
        return self._conclude(attempt)

    def _seen(self) -> RunTask:
        """The run, with what is so on its nodes in its provenance."""
        found = slurm_nodes.describe_job(self.task.command, self.allocation)
        return dataclasses.replace(self.task, origin={**self.task.origin, **found})

    def _watch(self, attempt: MpirunAttempt) -> None:
        asked = False
        deadline: float | None = None
        while attempt.poll() is None:
            if not asked:
                self.signals.heed_announcement(self.allocation)
            if self.signals.end():
                if deadline is None:
                    deadline = time.monotonic() + KILL_AFTER_S
                    attempt.terminate(run_directory.CANCELLED, self.signals.why_ended(self.allocation)[0])
                if time.monotonic() > deadline:
                    attempt.stop(run_directory.CANCELLED, "SLURM ended it", 0.0)
            elif (self.signals.stop() or self.signals.leave()) and not asked:
                attempt.preempt()
                asked = True
                self._why = self.signals.why(self.allocation, self.options)
            self._beat()
            time.sleep(POLL_S)

    def _told(self) -> tuple[str, str, str | None] | None:
        """That SLURM ends the job, of which mpirun may hear a moment before this process does."""
        deadline = time.monotonic() + SPREAD_S
        while not self.signals.end() and time.monotonic() < deadline:
            time.sleep(POLL_S / 2)
        return (run_directory.CANCELLED, *self.signals.why_ended(self.allocation)) if self.signals.end() else None

    def _beat(self) -> None:
        """Show that this job is alive, in the time of state.json."""
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self.options.poll_s
            with contextlib.suppress(OSError):
                os.utime(self.run.path(run_directory.STATE))

    def _conclude(self, attempt: MpirunAttempt) -> int:
        """Write what the end of an attempt means; returns the exit status."""
        status, reason, cause, code = attempt.status, attempt.reason, attempt.cause, attempt.exit_code
        asked = self._why is not None
        if self.run.result() is not None:
            return 0
        if self.signals.end() and status in (
            run_directory.FAILED,
            run_directory.CANCELLED,
        ):  # mpirun gets the TERM, too
            status, (reason, cause) = run_directory.CANCELLED, self.signals.why_ended(self.allocation)
            finish_attempt(self.run, status, reason, code, cause)
        elif asked and (status == run_directory.PREEMPTED or cause == failure_causes.KILLED):
            # a rank that does not listen yet is killed by the signal: there is nothing to save either
            saved = "saved" if status == run_directory.PREEMPTED and not attempt.unsaved else "before it had begun"
            status, reason = run_directory.PREEMPTED, f"{self._why}; {saved}"
            finish_attempt(self.run, status, reason, code)
        print(f"{self.run.name}: {status}: {reason}", file=sys.stderr)
        if status != run_directory.PREEMPTED or self.signals.stop():
            return 0 if status == run_directory.PREEMPTED else 1
        if preemptions(self.run, self.allocation.job) > self.options.requeues:
            return self._give_up()
        if self.signals.end():  # it is ended already; if SLURM queues it again, it does so by itself
            finish_attempt(self.run, status, reason, code, failure_causes.LOST)
            return 1
        refused = self.allocation.requeue()
        if refused is not None:
            not_again(self.run, refused, code)
            return 1
        return 0

    def _give_up(self) -> int:
        print(f"{self.run.name}: {give_up(self.run, self.allocation.job, self.options)}", file=sys.stderr)
        return 1


def main(arguments: list[str]) -> int:
    """Returns the exit status; a disk that cannot be written is a line."""
    try:
        return _main(arguments)
    except OSError as error:
        if (line := disk_errors.line(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 1


def _main(arguments: list[str]) -> int:
    signals = JobSignals()
    signals.listen()
    if len(arguments) != 1 or "SLURM_ARRAY_TASK_ID" not in os.environ:
        usage = "python -m sweep.executors.slurm_job.single_run SWEEP/slurm/batch-NNNN.json"
        print(f"usage, in a job array of SLURM: {usage}", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    batch = files.read_json(path)
    if batch is None:
        print(f"{path}: there is no such batch", file=sys.stderr)
        return 2
    index, allocation = int(os.environ["SLURM_ARRAY_TASK_ID"]), Allocation.from_environment(os.environ)
    exclusive = (batch.get("resources") or {}).get("exclusive") is True
    beside_others = not exclusive and (allocation.shared or allocation.is_overcounted())
    allocation = dataclasses.replace(allocation, shared=beside_others or allocation.is_oversubscribed())
    mine = batch["runs"][index]
    if isinstance(mine, list):
        from sweep.executors.slurm_job.packed_runs import ShareInAllocation

        return ShareInAllocation(path, index, mine, allocation, signals).compute()
    run = Run(path.parent.parent / batch.get("folder", run_directory.RUNS) / mine)
    job = files.read_json(run.path(run_directory.JOB))
    if job is None or job.get("batch") != path.stem:
        print(f"{run.name}: has been submitted anew, or is gone", file=sys.stderr)
        return 1
    return RunInAllocation(load_task(job["task"]), allocation, signals).compute()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
