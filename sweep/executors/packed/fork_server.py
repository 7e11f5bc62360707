"""Starts fork servers, processes that load torch once and then fork the ranks of worlds (docs/guide/packing.md).

The program of such a process is trainers/packed/fork_server.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradsweep.hardware import has_gpu_driver
from gradsweep.run_directory import THREAD_VARIABLES
from gradsweep.source_tree import ROOT
from gradsweep.targets import USER_CODE
from sweep.attempts.run_task import RunTask
from sweep.system.job_environment import build_job_environment
from sweep.system.processes import WORLD_VARIABLE, start_program

SOCKET = "n"  # short: the path of a socket is limited to 107 bytes
VARIABLE = "GRADSWEEP_FORK"
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")
LONGEST_MARK = 4200  # bytes of an environment variable with a path
PATIENCE_S = 60.0
MOST_RUNS = 12  # in an order, which has to fit into MESSAGE_BYTES of trainers/packed/fork_server.py


def can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether ranks can be forked: mpirun starts them, they use no GPUs, and GRADSWEEP_FORK is not 0."""
    return os.path.basename(command[0]) in LAUNCHERS and not has_gpu_driver() and environment.get(VARIABLE) != "0"


class ForkServer:
    """A running fork server, for worlds with the same environment and threads, which must be set before torch loads.

    Args:
        variables: the environment in the runs' section `mpi`.
        threads: the number of threads of each rank.

    Raises:
        OSError: the fork server cannot be started.
    """

    script = ROOT / "trainers" / "packed" / "fork_server.py"

    def __init__(self, variables: Mapping[str, str], threads: int) -> None:
        self.key = (dict(variables), threads)
        self.code: str | None = None
        """The directory of the packages that its ranks run; None until it serves a world."""
        environment = build_job_environment(variables, None, tempfile.gettempdir())
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        environment[WORLD_VARIABLE] = " " * LONGEST_MARK  # room in which each rank writes the name of its world
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, str(self.script), str(theirs.fileno())]
            try:
                self.process = start_program(command, [], environment, pass_fds=[theirs.fileno()])
            except BaseException:
                self._control.close()
                raise

    @property
    def was_killed(self) -> bool:
        """Whether a signal killed the fork server, and with it its ranks."""
        code = self.process.poll()
        return code is not None and code < 0

    def can_serve(self, variables: Mapping[str, str], threads: int, code: str | None) -> bool:
        """Tell whether this server can fork the ranks of runs with this environment, number of threads and code."""
        return (
            self.process.poll() is None
            and self.key == (dict(variables), threads)
            and self.code in (None, code or str(ROOT))
        )

    def wait(self) -> None:
        """Wait until the fork server has loaded torch or has ended, but not too long."""
        self._control.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError):
            self._control.recv(16)
        self._control.settimeout(None)

    def serve(self, task: RunTask, scratch: str, size: int, runs: Sequence[str] = ()) -> list[str]:
        """Prepare to fork the ranks of a world; return the program that MPI must start for each rank.

        Args:
            task: a run of the world.
            scratch: the world's directory, which only this user can enter.
            size: the number of the world's ranks.
            runs: directories of the runs that the world will probably train. The server loads the kernels of a sample
                of them before it forks the ranks.

        Raises:
            OSError: the socket cannot be opened.
        """
        self.code = task.code or str(ROOT)
        few = min(len(runs), MOST_RUNS)
        some = [os.path.abspath(runs[number * len(runs) // few]) for number in range(few)]
        order = {"do": "serve", "world": scratch, "code": self.code, "runs": some, "variable": WORLD_VARIABLE}
        # closed here, so that ranks notice when the server ends
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(os.path.join(scratch, SOCKET))
            listener.listen(size)
            self._send_order(order, [listener.fileno()])
        proxy = os.path.join(self.code, "trainers", "packed", "rank_proxy.py")
        return [sys.executable, "-I", "-S", proxy, os.path.join(scratch, SOCKET)]

    def stop_serving(self, scratch: str) -> None:
        """Stop forking ranks for the world with this directory."""
        self._send_order({"do": "forget", "world": scratch})

    def _send_order(self, order: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # it has ended: ranks start by themselves
            socket.send_fds(self._control, [json.dumps(order).encode()], descriptors)

    def close(self) -> None:
        """Kill the fork server and its remaining ranks."""
        self._control.close()
        self.process.kill()
        self.process.wait()


class ForkServers:
    """The fork servers of an executor: one for each environment and number of threads."""

    def __init__(self) -> None:
        self._all: list[ForkServer] = []

    @contextlib.contextmanager
    def start_early(self, command: Sequence[str], variables: Mapping[str, str], threads: int) -> Iterator[None]:
        """Start a fork server, which loads torch while the block runs, and wait for it at the end."""
        started = self._start(variables, threads) if can_fork(command, variables) else None
        try:
            yield
            if started is not None:
                started.wait()
        except BaseException:
            self.close()
            raise

    def find_or_start(self, task: RunTask) -> ForkServer | None:
        """Return a fork server for the ranks of this run and its like; None if the ranks cannot be forked."""
        if not can_fork(task.command, task.environment):
            return None
        # a fork server loads no code of the user
        variables = {name: value for name, value in task.environment.items() if name != USER_CODE}
        wanted = (variables, task.threads_per_worker, task.code)
        fitting = (fork_server for fork_server in self._all if fork_server.can_serve(*wanted))
        return next(fitting, None) or self._start(variables, task.threads_per_worker)

    def _start(self, variables: Mapping[str, str], threads: int) -> ForkServer | None:
        with contextlib.suppress(OSError):
            self._all.append(ForkServer(variables, threads))
            return self._all[-1]
        return None

    def close(self) -> None:
        """End all fork servers."""
        while self._all:
            self._all.pop().close()
