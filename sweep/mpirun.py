"""One run as one MPI job: start it, watch it, know how it ended, leave no process behind.

`MpiRun` is what executors are given. On this machine an executor drives `start`, `poll` and `stop`
itself; a scheduler that runs Python functions (SLURM through submitit) calls the object.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep import run as names
from sweep.run import Run

ATTEMPT_VARIABLE = "GRADSWEEP_ATTEMPT"
CORES_VARIABLE = "GRADSWEEP_CORES"
PR_SET_PDEATHSIG = 1
GRACE_S = 5.0

_INHERITED = (
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "PMI_",
    "MPI_LOCAL",
    "HYDRA_",
    "SLURM_",
    "SLURMD_",
    "SRUN_",
    "SBATCH_",
    "SUBMITIT_",
)
_KEPT = ("OMPI_ALLOW_RUN_AS_ROOT", "HYDRA_FULL_ERROR", "SLURM_CONF")


class RunFailed(Exception):
    """A run ended without a result; `str()` is the reason."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what an MPI job or a SLURM allocation around us has left in it.

    An mpirun that believes to be inside another one, or inside an allocation, binds its ranks to the
    wrong cores or refuses to start. The user's own OMPI_MCA_ settings stay, unless an mpirun set them.
    """
    inside = any(name in environment for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"))
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_INHERITED) or name.startswith(_KEPT) or (name.startswith("OMPI_MCA_") and not inside)
    }


def python_environment() -> dict[str, str]:
    """What lets our programs find our packages from any working directory, and not the files that lie there."""
    packages = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, packages)), "PYTHONSAFEPATH": "1"}


def processes_of(attempt: Path) -> list[int]:
    """The processes of this user that were started for an attempt, whoever is their parent by now."""
    needle = f"{ATTEMPT_VARIABLE}={attempt}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # ended meanwhile, or another user's
    return found


def kill_processes_of(attempt: Path) -> None:
    """End whatever an attempt has left running; returns when it is gone, so that its cores are free."""
    deadline = time.monotonic() + GRACE_S
    while (left := processes_of(attempt)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _in_child(cores: Sequence[int], parent: int) -> None:
    """In the child, before it becomes mpirun: take the leased cores, and end when the launcher does.

    mpirun ends its ranks on SIGTERM; a rank in turn dies with its mpirun (see trainers/__main__.py).
    """
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


@dataclasses.dataclass
class MpiRun:
    """Trains the run in `directory` with `workers` ranks (with a dedicated server one more than the config's workers).

    Plain fields: it can be pickled.

    `command` is the MPI launcher with its arguments, with {workers} where the number goes.
    """

    directory: str
    workers: int
    threads_per_worker: int
    command: list[str]
    environment: dict[str, str]

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
        return [*words, sys.executable, "-m", "trainers", self.directory]

    def start(self, cores: Sequence[int]) -> Attempt:
        """Start a new attempt on `cores` of this machine and write that it is running."""
        return Attempt(self, cores)

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
            attempt.stop(names.CANCELLED, "interrupted")
        return outcome(self.run)


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


class Attempt:
    """One try at a run: a running mpirun and the files that tell of it."""

    def __init__(self, task: MpiRun, cores: Sequence[int]) -> None:
        self.task, self.run = task, task.run
        state = self.run.state()
        self.number = 1 + max([len(state["attempts"]), *self.run.attempt_numbers()])
        self.directory = self.run.attempt(self.number).absolute()
        self.directory.mkdir(exist_ok=True)
        self.status: str | None = None
        self.reason: str | None = None
        self._stopping: tuple[str, str] | None = None
        # Open MPI names a directory there by the pid of mpirun, and fails over one that a killed mpirun has left.
        self._scratch = tempfile.mkdtemp(prefix="gradsweep-")
        environment = {
            **clean_environment(os.environ),
            **python_environment(),
            "TMPDIR": self._scratch,
            **task.environment,
            ATTEMPT_VARIABLE: str(self.directory),
            CORES_VARIABLE: ",".join(map(str, cores)),
        }
        if os.geteuid() == 0:  # Open MPI asks root twice
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        parent = os.getpid()
        try:
            with (self.directory / names.STDOUT).open("wb") as out, (self.directory / names.STDERR).open("wb") as err:
                self.process = subprocess.Popen(
                    task.arguments(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=lambda: _in_child(cores, parent),
                )
        except BaseException:
            self._tidy()
            raise
        record = {
            "number": self.number,
            "status": names.RUNNING,
            "reason": None,
            "exit_code": None,
            "started": names.now(),
            "ended": None,
            "host": socket.gethostname(),
            "pid": self.process.pid,
            "cores": list(cores),
        }
        try:
            write_state(
                self.run,
                status=names.RUNNING,
                reason=None,
                oversubscribed=task.cores > len(cores),
                attempts=[*state["attempts"], record],
            )
        except BaseException:  # nothing may run that no state tells of
            self.process.kill()
            self.process.wait()
            self._tidy()
            raise

    def poll(self) -> str | None:
        """The final status once the job has ended, else None."""
        if self.status is None and self.process.poll() is not None:
            self._finish()
        return self.status

    def preempt(self) -> None:
        """Have the job save where it is and end; the ranks, to which mpirun passes it on, do the rest."""
        if self.poll() is None:
            self.process.send_signal(signal.SIGUSR1)

    def terminate(self, status: str, reason: str) -> None:
        """Ask the job to end; it will have ended as `status` because of `reason`."""
        if self.poll() is None and self._stopping is None:
            self._stopping = (status, reason)
            self.process.terminate()

    def stop(self, status: str, reason: str, grace_s: float = GRACE_S) -> None:
        """End the job: politely, then after `grace_s` by force. Returns when nothing of it is left."""
        self.terminate(status, reason)
        if self.status is None:
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.poll()

    def _tidy(self) -> None:
        """Leave nothing of an mpirun that has ended."""
        kill_processes_of(self.directory)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _finish(self) -> None:
        self._tidy()
        code = self.process.returncode
        result = self.run.result()
        if result is not None:
            self.status, reason = result.get("status", names.DONE), result.get("reason")
        elif (stopped := names.read_json(self.directory / names.STOPPED)) is not None:
            self.status, reason = names.PREEMPTED, stopped.get("reason")
        elif self._stopping is not None:
            self.status, reason = self._stopping
        else:
            self.status, reason = names.FAILED, failure_reason(self.directory, code)
        self.reason = reason
        with contextlib.suppress(OSError):  # a full disk: the sweep goes on, a resume settles this run
            finish_attempt(self.run, self.status, reason, code)


def failure_reason(attempt: Path, exit_code: int) -> str:
    """Why an attempt failed: what the first rank that raised has left, else what the exit code tells."""
    reports = [report for path in attempt.glob("failure-*.json") if (report := names.read_json(path)) is not None]
    if reports:
        return str(min(reports, key=lambda report: str(report.get("time")))["reason"])
    number = -exit_code if exit_code < 0 else exit_code - 128
    if exit_code and 0 < number < 65:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        whom = "the MPI launcher" if exit_code < 0 else "a rank"
        return f"{whom} was killed by {name}"
    if exit_code == 0:
        return "the MPI launcher exited with 0, but rank 0 left no result"
    return f"the MPI launcher exited with {exit_code}"


def write_state(run: Run, **changes: Any) -> None:
    """Change fields of state.json. Only the launcher that holds the sweep's lock may do so."""
    state = {"format": names.FORMAT, **run.state(), **changes, "updated": names.now()}
    names.write_json(run.path(names.STATE), state)


def finish_attempt(run: Run, status: str, reason: str | None, exit_code: int | None) -> None:
    """Write how the latest attempt of a run has ended."""
    attempts = run.state()["attempts"] or [{"number": max([1, *run.attempt_numbers()])}]
    attempts[-1] |= {"status": status, "reason": reason, "exit_code": exit_code, "ended": names.now()}
    write_state(run, status=status, reason=reason, attempts=attempts)


def settle_abandoned(run: Run) -> None:
    """Bring the state of a run that no launcher watches in line with what it has left: its result counts.

    What is left running of its attempts is ended, also of one whose launcher died before it wrote of it.
    """
    status = run.status()
    if status not in names.COMPLETE:
        for number in run.attempt_numbers():
            kill_processes_of(run.attempt(number).absolute())
    result = run.result()
    if result is not None and status not in names.COMPLETE:
        finish_attempt(run, result.get("status", names.DONE), result.get("reason"), None)
    elif result is None and status == names.RUNNING:
        numbers = run.attempt_numbers()
        stopped = names.read_json(run.attempt(numbers[-1]) / names.STOPPED) if numbers else None
        if stopped is not None:
            finish_attempt(run, names.PREEMPTED, stopped.get("reason"), None)
        else:
            finish_attempt(run, names.FAILED, "the launcher was killed", None)
