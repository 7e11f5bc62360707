"""Run a job in temporary namespaces, by system calls; all that is created in them ends with their first process.

Python has `os.unshare` and `os.setns` only from 3.12 on.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from sweep.system.processes import PR_SET_PDEATHSIG

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_GET_PDEATHSIG, PR_SET_DUMPABLE = 2, 4

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that are passed on to the job once it runs; before that they end everything, as without handlers."""
PATIENCE_S = 15
"""Seconds between a SIGTERM and SIGKILL: the launcher may no longer be there to send that."""

Value = TypeVar("Value")

_libc = ctypes.CDLL(None, use_errno=True)


def contain(body: Callable[[Callable[[], None]], int]) -> NoReturn:
    """Call `body` in the first process of new namespaces, and then end this process with the same status.

    Args:
        body: starts the job. Its argument is a function to call when `body` has installed its signal handlers, right
            before the job begins: from then on this process passes signals on. It returns the job's exit status, or -n
            if signal n ended the job: this process then ends by the same signal.

    Raises:
        OSError: the kernel refuses; `strerror` names the kind of namespaces.
    """
    separate()
    theirs, ours = os.pipe()  # messages of the first process
    alive, living = os.pipe()  # open as long as this process lives; a byte says that it passes signals on
    first = os.fork()
    if first == 0:
        os.close(theirs)
        os.close(living)
        _die_with_parent(alive)
        status = 1
        try:
            status = body(lambda: _ask(ours, alive))
        except BaseException:
            import traceback

            traceback.print_exc()
        _say(ours, f"{status}\n")
        os._exit(0)
    os.close(ours)
    os.close(alive)
    _leave(_accompany(first, theirs, living))


def _say(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())


def _ask(descriptor: int, answers: int) -> None:
    _say(descriptor, "begun\n")
    os.read(answers, 1)


def _accompany(first: int, descriptor: int, answers: int) -> int:
    """Pass signals on until the first process has ended; return the job's exit status."""

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, number)
        if number == signal.SIGTERM:
            signal.alarm(PATIENCE_S)

    def force(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)

    signal.signal(signal.SIGALRM, force)
    messages = b""
    while part := os.read(descriptor, 64):
        if not messages:
            for number in PASSED_ON:
                signal.signal(number, pass_on)
            _say(answers, ".")
        messages += part
    _, status = os.waitpid(first, 0)
    last = messages.split(b"\n")[-2:-1]
    if last and last != [b"begun"]:
        return int(last[0])
    return os.waitstatus_to_exitcode(status) or 1


def _leave(code: int) -> NoReturn:
    """End this process with the exit status of the job, or by the same signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def separate() -> None:
    """Create a PID namespace for this process's children, if necessary in a new user namespace.

    Raises:
        OSError: the kernel refuses.
    """
    parent, wish = os.getppid(), ctypes.c_int()
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(wish))
    try:
        _unshare(CLONE_NEWPID, "process namespaces")
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _unshare(CLONE_NEWUSER | CLONE_NEWPID, "user namespaces")
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        except OSError as error:
            raise OSError(error.errno, f"user namespaces with root in them: {error.strerror}") from error
        # the new user namespace has cleared the flags by which this process is seen by, and ends with, its launcher
        _libc.prctl(PR_SET_DUMPABLE, 1)
        _libc.prctl(PR_SET_PDEATHSIG, wish.value)
        if wish.value and os.getppid() != parent:
            os._exit(1)


def _die_with_parent(alive: int) -> None:
    """Let the kernel kill this process when its parent ends; exit if `alive` shows that it has ended already."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        os._exit(1)


def isolate(place: Path) -> None:
    """Move this process to new mount, network, UTS and IPC namespaces, and mount an empty file system at `place`.

    Raises:
        OSError: the kernel refuses.
    """
    _unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC, "network namespaces")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    place.mkdir(mode=0o700, exist_ok=True)
    _mount("tmpfs", str(place), "tmpfs", MS_NOSUID | MS_NODEV)


def create_host(name: str, net: Path, uts: Path) -> None:
    """Enter a new network and a new UTS namespace; the files `net` and `uts` keep them after this process has ended."""
    _unshare(CLONE_NEWNET | CLONE_NEWUTS, "network namespaces")
    set_name(name)
    for path, kind in ((net, "net"), (uts, "uts")):
        path.touch()
        bind(Path(f"/proc/self/ns/{kind}"), path)


def enter(namespace: Path) -> None:
    """Enter the namespace that a file refers to."""
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        _check(_libc.setns(descriptor, 0), f"enter {namespace}")
    finally:
        os.close(descriptor)


def set_name(name: str) -> None:
    """Set the host name of this namespace."""
    text = name.encode()
    _check(_libc.sethostname(text, len(text)), "sethostname")


def bind(source: Path, target: Path) -> None:
    """Mount `source` at `target`, for all processes of this mount namespace."""
    _mount(str(source), str(target), None, MS_BIND)


def start(function: Callable[[], Value]) -> Callable[[], Value]:
    """Start a function in a new process; return a function that waits for its end and returns its value (by JSON).

    The returned function raises RuntimeError with the error that `function` raised.
    """
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        answer: dict[str, object] = {}
        try:
            answer["value"] = function()
        except BaseException as error:
            answer["error"] = str(error) or type(error).__name__
        _say(into, json.dumps(answer))
        os._exit(0)
    os.close(into)

    def wait() -> Value:
        with os.fdopen(out, "rb") as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        answer = json.loads(text or b"{}")
        if "value" not in answer:
            raise RuntimeError(answer.get("error") or f"a process ended with {os.waitstatus_to_exitcode(status)}")
        return cast(Value, answer["value"])

    return wait


def mount_sys(target: Path) -> None:
    """Mount /sys in `target`, with the interfaces of this network namespace."""
    target.mkdir()
    _mount("sysfs", str(target), "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _unshare(flags: int, what: str) -> None:
    _check(_libc.unshare(flags), what)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    kinds = None if kind is None else kind.encode()
    _check(_libc.mount(source.encode(), os.fsencode(target), kinds, flags, None), f"mount {source} on {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
