"""A common clock of all ranks, so that they can begin a collective together and know when the last of them has ended.

A barrier is not enough: ranks leave it up to a network latency apart, which on a slow network is as long as a small
collective takes (Hunold and Carpen-Amarie, "Reproducible MPI benchmarking is still not as easy as you think", 2016).
"""

from __future__ import annotations

import collections
import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

PR_SET_TIMERSLACK = 29
ROUNDS = 8  # of the messages that compare two clocks; the quickest counts
SHARE = 0.05  # of the time may go into comparing clocks
SPIN_S = 0.5e-3  # before the agreed time a rank with a core of its own stops sleeping


class CommonClock:
    """The clock of rank 0, as estimated by this rank. All ranks of `comm` create it together.

    Ranks of one machine have the same monotonic clock, even on different emulated hosts. Clocks of other machines are
    compared by round trips; the error is at most half of the shortest round trip (Cristian, 1989).
    """

    def __init__(self, comm: MPI.Comm) -> None:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # nanosecond: else a sleep may take 50 us longer
        self.comm = comm
        places = comm.allgather((identify_machine(), frozenset(os.sched_getaffinity(0))))
        self.one_machine = len({name for name, _ in places}) == 1
        self.crowded = is_crowded(places)
        """Some ranks share a core: one that waits must sleep."""
        self._offset, self._again = 0.0, 0.0
        self.compare()

    def now(self) -> float:
        """Return seconds on the clock of rank 0."""
        return time.perf_counter() + self._offset

    def compare(self) -> None:
        """Compare the clocks, unless they were compared a moment ago. All ranks call this."""
        if self.one_machine or not self.comm.bcast(time.perf_counter() >= self._again):
            return
        began = time.perf_counter()
        for rank in range(1, self.comm.size):
            if self.comm.rank == 0:
                for _ in range(ROUNDS):
                    self.comm.recv(source=rank)
                    self.comm.send(time.perf_counter(), dest=rank)
            elif self.comm.rank == rank:
                comparisons = []
                for _ in range(ROUNDS):
                    sent = time.perf_counter()
                    self.comm.send(None, dest=0)
                    theirs = self.comm.recv(source=0)
                    back = time.perf_counter()
                    comparisons.append((back - sent, theirs - (sent + back) / 2))
                self._offset = min(comparisons)[1]
        self._again = time.perf_counter() + (time.perf_counter() - began) / SHARE

    def wait_until(self, moment: float) -> None:
        """Wait until `now` returns this time; return at once if it is past."""
        left = moment - self.now()
        if not self.crowded:
            left -= SPIN_S
        if left > 0:
            time.sleep(left)
        while self.now() < moment:
            pass


def is_crowded(places: Sequence[tuple[str, frozenset[int]]]) -> bool:
    """Tell whether some ranks share a core, from the machine and the possible cores of each rank."""
    together = collections.Counter(places)
    if any(count > len(cores) for (_, cores), count in together.items()):
        return True
    for name in {name for name, _ in places}:
        here = [cores for other, cores in places if other == name]
        if len(here) > len(frozenset().union(*here)):
            return True
    return False


def identify_machine() -> str:
    """Return a unique name of this machine since its last boot; emulated hosts on it have the same name."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()
