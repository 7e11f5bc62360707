"""Correct the delay of packets by the latency of MPI messages, which is longer than that of a plain TCP connection.

A rank sends a line with the excess of its messages' latency in seconds (negative: too short), and continues when the
answer says that the delay is changed. It uses a Unix socket, as all hosts share the file system.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from pathlib import Path

from sweep.emulation.cluster import Cluster
from sweep.emulation.delay import Delayer

ANSWER = b"done\n"


class LatencyCorrection(threading.Thread):
    """The thread that receives corrections from ranks and applies them, until the process ends.

    Args:
        path: the path of the Unix socket.
        cluster: has the latencies, and the loss, which is kept.
        children: the lock to hold while this thread runs child processes and waits for them.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(self, path: Path, delayer: Delayer, cluster: Cluster, children: threading.Lock) -> None:
        super().__init__(daemon=True)
        self.delayer, self.cluster, self.children = delayer, cluster, children
        self.server = socket.socket(socket.AF_UNIX)
        place = os.open(path.parent, os.O_DIRECTORY)
        try:
            self.server.bind(f"/proc/self/fd/{place}/{path.name}")  # the path itself may be too long
        finally:
            os.close(place)
        self.server.listen()

    def run(self) -> None:
        while True:
            link, _ = self.server.accept()
            with link, link.makefile("rb") as lines, contextlib.suppress(OSError, RuntimeError, ValueError):
                for line in lines:
                    self._correct(float(line))
                    link.sendall(ANSWER)

    def _correct(self, excess: float) -> None:
        """Reduce the delay by another `excess` seconds, but keep it between 0 and twice the requested latency."""
        if not math.isfinite(excess):
            return
        latency = self.cluster.compute_latency(*self.cluster.farthest)
        with self.children:
            self.delayer.set_delay(min(max(self.delayer.own + excess, -latency), latency), self.cluster.loss)
