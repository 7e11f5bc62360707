"""One run as one MPI job: start it, watch it, know how it ended, leave no process behind.

`MpiRun` is what executors are given. On this machine an executor drives `start`, `poll` and `stop`
itself; a job of SLURM gets the object's fields as JSON (`task_from`).
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gradsweep import run_directory
from gradsweep.run_directory import ATTEMPT_VARIABLE, CORES_VARIABLE, Run
from sweep import emulation
from sweep.attempts.attempt import AGAIN_S, Try
from sweep.provenance import record
from sweep.settings.limits import Limits
from sweep.system import gpus, signals
from sweep.system.job_environment import job_environment
from sweep.system.lease import Lease
from sweep.system.log_pipes import Capture
from sweep.system.processes import GRACE_S, in_child, kill_processes_of
from sweep.system.slurm_allocation import Allocation


class RunFailed(Exception):
    """A run ended without a result; `str()` is the reason."""


@dataclasses.dataclass
class MpiRun:
    """Trains the run in `directory` with `workers` ranks (with a dedicated server one more than the config's workers).

    Plain fields: it travels as JSON.

    `command` is the MPI launcher with its arguments, with {workers} where the number goes.
    """

    directory: str
    workers: int
    threads_per_worker: int
    command: list[str]
    environment: dict[str, str]
    code: str | None = None
    """Directory of the packages that the ranks run; None: of those that run here."""
    code_version: str | None = None
    """Of that code, as sweep/provenance/code_snapshot.py has it."""
    origin: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Command, commit and the like: what sweep/provenance/record.py says of the run."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    gpus: int = 0
    """GPUs that the run needs for itself."""
    alone: bool = False
    """Nothing may run beside it: no memory was left when something may have."""
    launcher: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The options of hydra/launcher for this run."""
    module: list[str] = dataclasses.field(default_factory=lambda: ["trainers"])
    """What Python runs as each rank, with arguments before the directory."""
    network: dict[str, Any] | None = None
    """The config's section of that name where it is to be emulated."""

    @property
    def run(self) -> Run:
        return Run(Path(self.directory))

    @property
    def cores(self) -> int:
        """Cores that the run would like to have for itself."""
        return self.workers * self.threads_per_worker

    def arguments(self) -> list[str]:
        """The full command line of the job."""
        words = [word.replace("{workers}", str(self.workers)) for word in self.command]
        job = [*words, sys.executable, "-m", *self.module, self.directory]
        if self.network is None:
            return job
        return emulation.command(self.network, self.workers, self.threads_per_worker, job)

    def start(self, cores: Sequence[int], lease: Lease | None = None, allocation: Allocation | None = None) -> Attempt:
        """Start a new attempt on `cores` of this machine, or in the `allocation` around us, and write that it runs.

        Args:
            cores: that its processes may run on.
            lease: whose GPUs are its own and whose locks its processes keep; None: an allocation is all its own.
        """
        return Attempt(self, cores, lease, allocation)

    def __call__(self) -> dict[str, Any]:
        """Run to the end and return the result: what a job inside an allocation does.

        Raises:
            RunFailed: with the reason that state.json gives.
        """
        attempt = self.start(sorted(os.sched_getaffinity(0)))
        try:
            while attempt.poll() is None:
                time.sleep(0.2)
        finally:
            attempt.stop(run_directory.CANCELLED, "interrupted")
        return outcome(self.run)


def task_from(fields: Mapping[str, Any]) -> MpiRun:
    """The task that `dataclasses.asdict` was given."""
    return cast(MpiRun, _from_dict(MpiRun, fields))


def _from_dict(cls: Any, fields: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    found = {}
    for name, value in fields.items():
        kinds = [kind for kind in (hints[name], *typing.get_args(hints[name])) if dataclasses.is_dataclass(kind)]
        found[name] = _from_dict(kinds[0], value) if kinds and isinstance(value, Mapping) else value
    return cls(**found)


def outcome(run: Run) -> dict[str, Any]:
    """The result of a finished run.

    Raises:
        RunFailed: it has none.
    """
    result = run.result()
    if result is None:
        state = run.state()
        raise RunFailed(f"{state['status']}: {state.get('reason')}")
    return result


class Attempt(Try):
    """One try at a run: a running mpirun and the files that tell of it.

    An attempt that makes no sense (the run's config is not what it was) has failed from the beginning.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        task: MpiRun,
        cores: Sequence[int],
        lease: Lease | None = None,
        allocation: Allocation | None = None,
    ) -> None:
        self.allocation = allocation
        super().__init__(task, cores, Lease(tuple(cores)) if lease is None else lease)
        if self.status is not None:
            return
        # Open MPI names a directory there by the pid of mpirun, and fails over one that a killed mpirun has left.
        self._scratch = f"{tempfile.gettempdir()}/gradsweep-{secrets.token_hex(4)}"
        self._capture: Capture | None = None
        own = {
            ATTEMPT_VARIABLE: str(self.directory),
            CORES_VARIABLE: "" if self.lease.is_shared else ",".join(map(str, cores)),  # to pin ranks to
            **gpus.environment(self.lease.gpus),
        }
        environment = job_environment({**task.environment, **own}, task.code, self._scratch, allocation)
        parent = os.getpid()
        try:
            self._capture = Capture(
                self.directory,
                (run_directory.STDOUT, run_directory.STDERR),
                task.limits.log_bytes,
                self._scratch,
                cores,
            )
            os.mkdir(self._scratch, 0o700)  # not before: whoever kills us now, the program that has begun removes it
            out, err = self._capture.inputs
            run_directory.write_json(
                self.directory / run_directory.PROVENANCE, record.of_attempt(task.origin, environment)
            )
            self.process = subprocess.Popen(
                task.arguments(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
                pass_fds=self.lease.descriptors,
                preexec_fn=lambda: in_child(cores, parent),
            )
            self._capture.close_inputs()
        except subprocess.SubprocessError as error:  # in the child: its cores are not ours any more, say
            self._tidy()
            raise OSError(f"{task.command[0]}: {error}") from error
        except BaseException:
            self._tidy()
            raise
        try:
            self._write(self.process.pid, **({} if allocation is None else allocation.about()))
        except BaseException:  # nothing may run that no state tells of
            self.process.kill()
            self.process.wait()
            self._tidy()
            raise

    def _room(self) -> int:
        return super()._room() if self.allocation is None else self.allocation.cpus

    def poll(self) -> str | None:
        if self.status is None:
            if self.process.poll() is not None:
                self._finish()
            else:
                self._killed_for_memory.look()
                self._limit()
                if self._asked is not None and time.monotonic() >= self._asked + AGAIN_S:
                    self._ask()
        return self.status

    def _send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)  # SIGUSR1 and SIGUSR2 go on to the ranks

    def preempt(self) -> None:
        if self.poll() is None:
            self._ask()

    def _ask(self) -> None:
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
            if time.monotonic() >= deadline or signals.hurried():
                self.process.kill()
                self.process.wait()
            else:
                time.sleep(0.01)

    def _tidy(self) -> None:
        """Leave nothing of an mpirun that has ended."""
        kill_processes_of(self.directory)
        if self._capture is not None:
            self._capture.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _lost_nodes(self) -> list[str]:
        return [] if self.allocation is None else self.allocation.lost_nodes()

    def _finish(self) -> None:
        self._tidy()
        self._conclude(self.process.returncode)
