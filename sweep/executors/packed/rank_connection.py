"""Connects the ranks of a world (world.py) with the launcher, and transmits orders and answers.

Ranks connect through a Unix socket in a directory that only this user can enter, or from other nodes through a port.
Both sides prove that they know a secret key. Messages are JSON, and nothing that they contain is executed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import secrets
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError, connection
from typing import Any

from gradsweep.errors import bad_value
from gradsweep.run_directory import WORLD_CONTROL

MESSAGE_BYTES = 1 << 20
MESSAGES = 32  # that are read of a rank at a time
HANDSHAKE_S = 5
LONGEST_ADDRESS = 100  # bytes of a Unix socket's path


@dataclasses.dataclass
class Rank:
    """A rank of the world that has connected.

    Attributes:
        run: the number of the run that the rank trains.
        warm: the rank has trained before, so it has loaded torch.
        pid: None: the rank has no process ID here (on another node, or on an emulated host), so signals are sent to it
            as messages.
        terminated: the rank has reported that somebody else's signal ends it.
        remote: the rank may be on another node, so it gets no descriptors.
    """

    connection: connection.Connection
    number: int
    pid: int | None
    run: int | None = None
    warm: bool = False
    terminated: bool = False
    remote: bool = False

    def send_order(self, order: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send the rank an order and open files; raise no error if the rank has died, because `receive` raises it."""
        descriptors = [] if self.remote else descriptors
        text = json.dumps({**order, "descriptors": len(descriptors)}).encode()
        with contextlib.suppress(OSError):
            self.connection.send_bytes(text)
            if descriptors:
                with socket.fromfd(self.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as link:
                    socket.send_fds(link, [b"."], descriptors)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the rank a signal, if necessary as a message."""
        if self.pid is None:
            self.send_order({"do": "signal", "signal": int(number)})
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield the rank's messages since the last call, at most `MESSAGES`.

        Raises:
            EOFError, OSError, ValueError: the rank is gone, or the message is not JSON.
        """
        for _ in range(MESSAGES):
            if not self.connection.poll():
                return
            yield json.loads(self.connection.recv_bytes(MESSAGE_BYTES))


def check_socket_path() -> None:
    """Raise UsageError if the path of a world's socket in the directory for temporary files would be too long."""
    place = tempfile.gettempdir()
    own = len("/gradsweep-01234567/s")
    if len(os.fsencode(place)) + own > LONGEST_ADDRESS:
        most = LONGEST_ADDRESS - own
        raise bad_value(
            "TMPDIR", place, f"a path of at most {most} bytes with sweep.pack=true, which opens a socket there"
        )


class RankListener:
    """Accepts connections of ranks through a Unix socket, or from several nodes through a port.

    If ranks are on several nodes, a connection without the key is closed, and does not delay others. Like MPI's
    messages, these are not encrypted.

    Args:
        directory: a new directory, which only this user can enter; with several nodes, on a file system that all nodes
            share. control.json in it tells ranks where to connect; only this user can read it, and `close` removes it.
        threads: the number of threads of each rank. It is in control.json because ranks must set it before they load
            torch.
        size: the number of the world's ranks.
        remote: the ranks are on several nodes.
        emulated: the ranks are on emulated hosts, which have process IDs of their own.

    Raises:
        OSError: the socket cannot be opened.
    """

    def __init__(
        self, directory: str, threads: int, size: int, *, remote: bool = False, emulated: bool = False
    ) -> None:
        self._key, self._remote, self._has_own_pids = secrets.token_bytes(32), remote, remote or emulated
        self._control = os.path.join(directory, WORLD_CONTROL)
        self._greeted: queue.SimpleQueue[tuple[Rank, dict[str, Any]]] = queue.SimpleQueue()
        path = os.path.join(directory, "s")
        if not remote:
            if len(os.fsencode(path)) > LONGEST_ADDRESS:
                raise OSError(f"TMPDIR={os.path.dirname(directory)}: valid is a shorter path, for a socket to be there")
            os.mkdir(directory, 0o700)
        self._socket = socket.socket(socket.AF_INET if remote else socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(("", 0) if remote else path)
            self._socket.listen(size)
            self._socket.setblocking(False)
            control = {
                "address": [socket.gethostname(), self._socket.getsockname()[1]] if remote else path,
                "family": "AF_INET" if remote else "AF_UNIX",
                "key": self._key.hex(),
                "threads": threads,
            }
            with os.fdopen(os.open(self._control, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(control, file)
        except BaseException:
            self.close()
            raise

    def accept_ranks(self) -> Iterator[tuple[Rank, dict[str, Any]]]:
        """Yield the ranks that have connected since the last call, each with its first message."""
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._socket.accept()
                if self._remote:
                    threading.Thread(target=self._shake_hands, args=(accepted,), daemon=True).start()
                else:
                    self._shake_hands(accepted)
        while not self._greeted.empty():
            yield self._greeted.get()

    def _shake_hands(self, accepted: socket.socket) -> None:
        accepted.setblocking(True)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", HANDSHAKE_S, 0))
        if self._remote:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = connection.Connection(accepted.detach())
        try:
            connection.deliver_challenge(link, self._key)
            connection.answer_challenge(link, self._key)
            hello = json.loads(link.recv_bytes(MESSAGE_BYTES))
            pid = None if self._has_own_pids else int(hello["pid"])
            self._greeted.put((Rank(link, int(hello["rank"]), pid, remote=self._remote), hello))
        except (OSError, EOFError, ValueError, KeyError, AuthenticationError):
            link.close()

    def close(self) -> None:
        """Close the socket to new connections."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._control)
