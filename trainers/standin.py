"""`mpirun -n R python -I -S standin.py POOL_DIR`: what MPI takes for a rank; the rank itself is forked elsewhere.

The nursery (trainers/nursery.py) has loaded torch once for all ranks of this machine. It is given this process's stdin,
stdout and stderr, reads its environment, cores and working directory, and forks a rank with them. Signals are passed on
to the rank, and this process ends as the rank does; should it be killed, so is the rank. Where there is no nursery, or
none for this MPI, this process becomes a rank of the ordinary kind. Standard library only, and little of it: it is to
start in no time.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SOCKET = "n"  # as in sweep/nursery.py
TAKEN = b"+"  # as in trainers/nursery.py
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def ask(pool: str, link: socket.socket) -> bool:
    """Whether the nursery makes a rank for us."""
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
    heard: list[int] = []
    passed = False

    def pass_on(number: int, frame: object) -> None:
        if not passed:
            heard.append(number)
            return
        try:  # noqa: SIM105 - contextlib takes longer to load than all the rest
            link.send(bytes([number]))
        except OSError:
            pass  # it has ended

    for each in PASSED_ON:  # first of all: a signal that nobody listens to would end this process
        signal.signal(each, pass_on)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if not ask(pool, link):
        link.close()
        for number in heard:
            end_as(-number)
        os.execv(sys.executable, [sys.executable, "-m", "trainers.pool", pool])
    passed = True
    for number in heard:
        pass_on(number, None)
    word = link.recv(4, socket.MSG_WAITALL)
    end_as(int.from_bytes(word, "little", signed=True) if len(word) == 4 else -signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
