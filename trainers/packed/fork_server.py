"""`python trainers/packed/fork_server.py CONTROL`: loads torch and kernels once, and forks the ranks of this machine.

MPI starts a proxy (trainers/packed/rank_proxy.py) for each rank of a packed world (trainers/packed/worker.py), which
asks for the rank through a socket of its world. The forked rank takes over the proxy's stdin, stdout, stderr,
environment, cores and working directory, so that MPI takes it for the process that it has started. Ranks share the
memory pages of torch and kernels, as long as no rank changes them.

CONTROL is the descriptor of a connection to the launcher (sweep/executors/packed/fork_server.py), which sends the
worlds to listen for and the directory of our code. Our code is loaded only then, because the fork server may be started
before that directory is known. When the connection ends, the fork server and all ranks end. Nothing here may start
threads: no MPI, no GPU, no tensor.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

TAKEN = b"+"
READY = b"ready"
MESSAGE_BYTES = 1 << 16
HANDSHAKE_S = 5.0
PR_SET_PDEATHSIG = 1
LIBRARIES = ("torch", "yaml")
USEFUL = ("numba", "scipy.linalg")  # where installed: for most compressors' kernels
OURS = ("trainers.packed.worker", "trainers.packed.isolation", "trainers.training.loop")
KERNELS = "compressors.kernels.cpu.sums"  # of nearly all compressors


def load_libraries() -> None:
    """Load libraries, but none of our own code."""
    for name in (*LIBRARIES, *USEFUL):
        if name in LIBRARIES or importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    numba = sys.modules.get("numba")
    if numba is not None:
        numba.njit("int64(int64)")(lambda number: number)  # the first function loads most of numba


def can_fork() -> bool:
    """Tell whether this process has no other threads, which a fork would lose; OpenBLAS ends its own before a fork."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return len(os.listdir("/proc/self/task")) == 1


def load_ours(code: str, runs: list[str]) -> None:
    """Load our code from the directory `code`, with the kernels and models of the runs in the directories `runs`."""
    sys.path.insert(0, code)
    for name in OURS:
        importlib.import_module(name)
    if "numba" in sys.modules:
        importlib.import_module(KERNELS)
    if runs:
        importlib.import_module("trainers.packed.preload").preload(runs)


def mark(name: bytes, value: bytes) -> None:
    """Write an environment variable into the memory of this process that /proc shows as its environment.

    The launcher finds the processes of a world by this variable. It must exist already with a value at least as long.

    Raises:
        ValueError: the variable is missing or its value too short.
    """
    variable = name + b"=" + value
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end
    shown = b"\0" + ctypes.string_at(start, end - start)
    at = shown.index(b"\0" + name + b"=")
    if len(variable) >= shown.index(b"\0", at + 1) - at:
        raise ValueError(f"{variable!r} is too long")
    ctypes.memmove(start + at, variable + b"\0", len(variable) + 1)


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class ForkServer:
    """Forks ranks and reports their exit statuses to the proxies.

    Args:
        control: connection to the launcher.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loaded = False
        self._variable = b""  # of the environment, which has the directory of the world
        self._listeners: dict[str, socket.socket] = {}  # by the directory of the world
        self._links: dict[int, socket.socket] = {}  # to the proxies, by the rank's pid
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve the launcher until it closes the connection."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._obey():
                        return
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                elif key.data in self._links:
                    self._pass_on(key.data)
                elif key.data in self._listeners:
                    self._accept(key.data)
            self._reap()

    def _obey(self) -> bool:
        """Read and execute an order of the launcher; return False if it has ended or this process cannot fork."""
        text, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not text:
            return False
        order: dict[str, Any] = json.loads(text)
        if order["do"] == "forget":
            gone = self._listeners.pop(order["world"], None)
            if gone is not None:
                self._selector.unregister(gone)
                gone.close()
            return True
        listener = self._listeners[order["world"]] = socket.socket(fileno=descriptors[0])
        self._selector.register(listener, selectors.EVENT_READ, order["world"])
        self._variable = order["variable"].encode()
        if not self._loaded:
            load_ours(order["code"], order["runs"])
            if not can_fork():
                return False
            gc.freeze()  # the garbage collector of a rank skips what is loaded here
            self._loaded = True
        return True

    def _accept(self, world: str) -> None:
        link, _ = self._listeners[world].accept()
        link.settimeout(HANDSHAKE_S)
        descriptors: list[int] = []
        try:
            pid, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user != os.geteuid():
                raise PermissionError(f"user {user} asks for a rank")
            descriptors = list(socket.recv_fds(link, 1, 3, socket.MSG_CMSG_CLOEXEC)[1])
            if len(descriptors) != 3:
                raise ValueError("no stdin, stdout and stderr")
            context = self._read_process(pid)
            link.sendall(TAKEN)
        except (OSError, ValueError):
            link.close()  # the proxy becomes an ordinary rank
        else:
            parent = os.getpid()
            # a signal may reach the rank before its fork has returned, when Python would drop it
            open_to = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
            child = os.fork()
            if child == 0:
                die_with(parent)
                link.close()
                self._become(world, descriptors, open_to, *context)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)
            link.setblocking(False)
            self._links[child] = link
            self._selector.register(link, selectors.EVENT_READ, child)
        for descriptor in descriptors:
            os.close(descriptor)

    @staticmethod
    def _read_process(pid: int) -> tuple[dict[bytes, bytes], set[int], str]:
        """Return the environment, cores and working directory of a process."""
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        variables = dict(word.split(b"=", 1) for word in words if b"=" in word)
        return variables, os.sched_getaffinity(pid), os.readlink(f"/proc/{pid}/cwd")

    def _become(
        self,
        world: str,
        descriptors: list[int],
        open_to: set[int],
        variables: dict[bytes, bytes],
        cores: set[int],
        folder: str,
    ) -> NoReturn:
        """Turn this child process into a rank with the descriptors, environment, cores and folder of a proxy."""
        try:
            mark(self._variable, variables.get(self._variable, b""))
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)
            for open_socket in (*self._links.values(), *self._listeners.values(), self._control):
                open_socket.close()
            for end in (self._woken, self._waking):
                end.close()
            self._selector.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.environb.clear()
            os.environb.update(variables)
            tempfile.tempdir = None  # to be chosen by the variables
            os.sched_setaffinity(0, cores)
            os.chdir(folder)
            gc.enable()

            from trainers.packed import worker

            worker.main([world])
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(1)

    def _pass_on(self, child: int) -> None:
        """Forward to the rank `child` the signals that its proxy has received; kill it if the proxy has ended."""
        link = self._links[child]
        try:
            numbers = link.recv(64) or bytes([signal.SIGKILL])
        except OSError:
            numbers = bytes([signal.SIGKILL])
        for number in numbers:
            os.kill(child, number)  # a child that has ended keeps its pid until it is reaped
        if signal.SIGKILL in numbers:
            self._selector.unregister(link)

    def _reap(self) -> None:
        """Report the exit status of ended ranks to their proxies."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                link = self._links.pop(child)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(link)
                with contextlib.suppress(OSError):
                    link.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))
                link.close()


def main(control: socket.socket) -> None:
    """Load libraries, and serve the launcher at the other end of `control`."""
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]  # Python 3.10 looks for modules there first
    gc.disable()  # loaded modules stay
    load_libraries()
    if not can_fork():
        return
    control.send(READY)
    ForkServer(control).serve()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
