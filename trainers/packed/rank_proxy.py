"""`mpirun -n R python -I -S rank_proxy.py POOL_DIR`: what MPI takes for a rank; the rank itself is forked elsewhere.

The fork server (trainers/packed/fork_server.py) has loaded torch once for all ranks of this machine. It is given this
process's stdin, stdout and stderr, reads its environment, cores and working directory, and forks a rank with them.
Signals are passed on to the rank, and this process ends as the rank does; should it be killed, so is the rank. Where
there is no fork server, or none for this MPI, this process becomes a rank of the ordinary kind. Standard library only,
and little of it: it is to start in no time.
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

SOCKET = "n"  # as in sweep/executors/packed/fork_server.py
TAKEN = b"+"  # as in trainers/packed/fork_server.py
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def ask(pool: str, link: socket.socket) -> bool:
    """Whether the fork server makes a rank for us."""
    if "PMIX_RANK" not in os.environ:  # who we are is not in the environment alone: in a file that is open here, say
        return False
    try:
        link.connect(os.path.join(pool, SOCKET))
        socket.send_fds(link, [b"."], [0, 1, 2])
        return link.recv(1) == TAKEN
    except OSError:
        return False


def end_as(status: int) -> NoReturn:
    """End with this exit status; a negative one is the number of a signal."""
    if status < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has left its own
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main(pool: str) -> None:
    woken, waking = socket.socketpair()
    for one in (woken, waking):
        one.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())  # a handler written in Python may run only after the wait it should end
    for each in PASSED_ON:  # first of all: a signal that nobody listens to would end this process
        signal.signal(each, lambda number, frame: None)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if not ask(pool, link):
        link.close()
        try:
            end_as(-woken.recv(1)[0])
        except BlockingIOError:  # none has come
            os.execv(sys.executable, [sys.executable, "-m", "trainers.packed.worker", pool])
    while link not in select.select([link, woken], [], [])[0]:
        try:
            link.send(woken.recv(64))
        except OSError:
            break  # it has ended
    word = link.recv(4, socket.MSG_WAITALL)
    end_as(int.from_bytes(word, "little", signed=True) if len(word) == 4 else -signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
