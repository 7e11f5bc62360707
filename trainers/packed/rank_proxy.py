"""`mpirun -n R python -I -S rank_proxy.py WORLD_DIR/SOCKET`: the process that MPI starts in place of a forked rank.

The fork server (trainers/packed/fork_server.py) has loaded torch once for all ranks of this machine. It gets this
process's stdin, stdout and stderr, reads its environment, cores and working directory, and forks a rank with them. This
process passes signals on to the rank and exits with the rank's status; if it is killed, the rank is killed too. Without
a fork server, or with an MPI for which none works, this process becomes an ordinary rank. Uses little of the standard
library, so that it starts at once.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def ask(path: str, link: socket.socket) -> bool:
    """Ask the fork server at the socket `path` for a rank; return whether it forks one."""
    if "PMIX_RANK" not in os.environ:  # this MPI may pass a rank's identity in other ways, such as an open file
        return False
    try:
        link.connect(path)
        socket.send_fds(link, [b"."], [0, 1, 2])
        return link.recv(1) != b""  # a byte for a rank; the fork server closes the connection where it forks none
    except OSError:
        return False


def end_as(status: int) -> NoReturn:
    """End this process with an exit status, or with a negative one -n by signal n."""
    if status < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has left a core file
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main(path: str) -> None:
    """Request a forked rank and act as its proxy, or become an ordinary rank."""
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())  # a handler in Python would run only after the wait
    for passed_on in PASSED_ON:  # before anything slow: an unhandled signal would end this process
        signal.signal(passed_on, lambda number, frame: None)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if not ask(path, link):
        link.close()
        try:
            end_as(-woken.recv(1)[0])
        except BlockingIOError:  # no signal has come
            world = os.path.dirname(path)
            os.execv(sys.executable, [sys.executable, "-m", "trainers.packed.worker", world])
    while link not in select.select([link, woken], [], [])[0]:
        try:
            link.send(woken.recv(64))
        except OSError:
            break  # the rank has ended
    word = link.recv(4, socket.MSG_WAITALL)
    end_as(int.from_bytes(word, "little", signed=True) if len(word) == 4 else -signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
