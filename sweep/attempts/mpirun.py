"""An attempt at a run with an mpirun of its own: starts it, watches it, and leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Sequence

from gradsweep import files, run_directory
from gradsweep.run_directory import ATTEMPT_VARIABLE, CORES_VARIABLE
from sweep.attempts.attempt import AGAIN_S, Attempt, ReportedEnd
from sweep.attempts.run_task import RunTask
from sweep.provenance import record
from sweep.system import gpus, signals
from sweep.system.job_environment import build_job_environment
from sweep.system.lease import Lease
from sweep.system.log_pipes import Capture
from sweep.system.processes import GRACE_S, choose_scratch, start_program
from sweep.system.slurm_allocation import Allocation


class MpirunAttempt(Attempt):
    """An attempt at a run, which has its own mpirun.

    Raises:
        OSError: mpirun cannot be started.
    """

    def __init__(
        self,
        task: RunTask,
        cores: Sequence[int],
        lease: Lease | None = None,
        allocation: Allocation | None = None,
        await_reported_end: ReportedEnd | None = None,
    ) -> None:
        lease = Lease(tuple(cores)) if lease is None else lease
        super().__init__(task, cores, lease, allocation, await_reported_end)
        if self.status is not None:
            return
        self._scratch = choose_scratch()
        own = {
            ATTEMPT_VARIABLE: str(self.directory),
            CORES_VARIABLE: "" if self.lease.is_shared else ",".join(map(str, cores)),  # to pin ranks to
            **gpus.build_environment(self.lease.gpus),
        }
        environment = build_job_environment({**task.environment, **own}, task.code, self._scratch, allocation)
        with contextlib.ExitStack() as undo:
            undo.callback(self._tidy)
            self._capture = Capture(self.directory, task.limits.log_bytes, self._scratch, cores)
            os.mkdir(self._scratch, 0o700)  # after Capture, whose program removes it if this process is killed
            files.write_json(
                self.directory / run_directory.PROVENANCE, record.describe_attempt(task.origin, environment)
            )
            out, err = self._capture.inputs
            self.process = start_program(
                task.build_command(), cores, environment, stdout=out, stderr=err, pass_fds=self.lease.descriptors
            )
            undo.callback(self.process.wait)
            undo.callback(self.process.kill)  # nothing may run without a state that says so
            self._capture.close_inputs()
            self._write_start(self.process.pid)
            undo.pop_all()

    def poll(self) -> str | None:
        if self.status is None:
            if self.process.poll() is not None:
                self._finish(self.process.returncode)
            else:
                self._killed_for_memory.look()
                self._enforce_limits()
                if self._asked is not None and time.monotonic() >= self._asked + AGAIN_S:
                    self._ask_to_save()
        return self.status

    def _send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)  # SIGUSR1 and SIGUSR2 go on to the ranks

    def preempt(self) -> None:
        if self.poll() is None:
            self._ask_to_save()

    def _ask_to_save(self) -> None:
        self._asked = time.monotonic()
        self.process.send_signal(signal.SIGUSR1)

    def terminate(self, status: str, reason: str) -> None:
        if self.poll() is None:
            self._stopping = self._stopping or (status, reason, None)
            self._signals = []
            self.process.terminate()

    def stop(self, status: str, reason: str, grace_s: float = GRACE_S) -> None:
        self.terminate(status, reason)
        deadline = time.monotonic() + grace_s
        while self.poll() is None:
            if time.monotonic() >= deadline or signals.is_hurried():
                self.process.kill()
                self.process.wait()
            else:
                time.sleep(0.01)

    def _tidy(self) -> None:
        super()._tidy()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _find_lost_nodes(self) -> list[str]:
        return [] if self.allocation is None else self.allocation.find_lost_nodes()
