"""Correct the delay by the latency of the ranks' own messages, which is longer than that of a bare connection.

A rank sends a line with the seconds that messages take too long (below 0: too short) through a socket in the file
system, which all hosts share, and continues after the answer that the delay is changed.
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
    """Applies corrections from ranks until the process ends.

    Args:
        path: of the socket.
        cluster: its loss stays the same.
        children: held while this thread waits for the status of processes.

    Raises:
        OSError: the socket cannot be made.
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
        """Add `excess` seconds to the correction, which keeps the delay between none and twice the latency."""
        if not math.isfinite(excess):
            return
        latency = self.cluster.compute_latency(*self.cluster.farthest)
        with self.children:
            self.delayer.set_delay(min(max(self.delayer.own + excess, -latency), latency), self.cluster.loss)
