"""Start programs; find and kill an attempt's processes by a variable in their environment, whatever their parent is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradsweep.run_directory import ATTEMPT_VARIABLE

WORLD_VARIABLE = "GRADSWEEP_WORLD"
"""Mark of the processes of an MPI world of many runs: its directory, as ATTEMPT_VARIABLE has an attempt's."""

PR_SET_PDEATHSIG = 1
GRACE_S = 5.0


def read_output(*command: str, timeout: float, cwd: Path | None = None) -> bytes | None:
    """Run a command; return its output, or None if it cannot run, fails, or takes longer than `timeout` (s)."""
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def read_text(*command: str, timeout: float) -> str:
    """Run a command like `read_output`; return its output as text, empty without output."""
    return (read_output(*command, timeout=timeout) or b"").decode("utf-8", errors="replace")


def find_processes(directory: Path, mark: str = ATTEMPT_VARIABLE) -> list[int]:
    """Return the pids of an attempt's or world's processes: its directory is in their environment variable `mark`.

    The directory may have been reached by another path, through a symbolic link.
    """
    begin, real = f"{mark}=".encode(), os.path.realpath(os.fsencode(directory))
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended, or is another user's
            if any(os.path.realpath(each[len(begin) :]) == real for each in variables if each.startswith(begin)):
                pids.append(int(entry.name))
    return pids


def kill_processes(directory: Path, mark: str = ATTEMPT_VARIABLE) -> None:
    """Kill the processes of an attempt or a world, and wait until they are gone, so that their cores are free."""
    deadline = time.monotonic() + GRACE_S
    while (left := find_processes(directory, mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def start_program(
    command: Sequence[str],
    cores: Sequence[int],
    environment: Mapping[str, str],
    *,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, bound to `cores` if any; the program is ended when this process ends.

    Raises:
        OSError: the program cannot be started.
    """
    parent = os.getpid()
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=lambda: prepare_child(cores, parent),
        )
    except subprocess.SubprocessError as error:  # in the child, for example because its cores are not ours any more
        raise OSError(f"{command[0]}: {error}") from error


def choose_scratch() -> str:
    """Return an unused path for the temporary files of one mpirun.

    Each mpirun needs its own: Open MPI creates a directory named by mpirun's pid in it, and fails if a killed mpirun
    with the same pid has left one.
    """
    return f"{tempfile.gettempdir()}/gradsweep-{secrets.token_hex(4)}"


def prepare_child(cores: Sequence[int], parent: int) -> None:
    """In a new child process: bind it to `cores`, if any, and let the kernel end it (SIGTERM) when its parent ends.

    mpirun ends its ranks on SIGTERM, and a rank ends if its mpirun has ended (see trainers/mpi/process.py).
    """
    if cores:
        os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
