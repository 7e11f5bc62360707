"""Time a fixed piece of work between steps, which shows whether the cores were as fast as at other times.

Two things slow a run down from outside. Below the kernel, neighbours of a virtual machine share its processors: the
same instructions take longer, and no process of this machine shows why. Within the kernel, other processes take time
slices. The yardstick shows the first by the CPU time of this thread, which does not contain the slices of others. It
shows the second by the core time that processes other than the run's took (trainers/devices/core_time.py). Slices that
the hypervisor gave to other virtual machines belong to the second: the kernel calls them steal, and does not count them
as CPU time of a thread.

The ranks of a machine take turns, and the others sleep meanwhile. Otherwise, ranks on two threads of one processor
core, or more ranks than cores, would slow each other down, and a run with more workers would seem disturbed by others.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainers.devices import core_time

if TYPE_CHECKING:
    from mpi4py import MPI

ELEMENTS = 24 * 1024
"""The size of each of two fp32 buffers: 192 KiB in all, between the sizes of a first- and a second-level cache."""
PASSES = 5
REPEATS = 20
"""The repetitions of the arithmetic in a pass: all passes take about 1 ms on a processor of 2024."""
TURN_S = 0.002
"""The time that a rank has for its turn. A slower one overlaps with the next, which costs precision only."""
EVERY_S = 0.9
"""Training time between two readings, at least. A little less than what the recorder combines in."""
MOST_COST = 0.005
"""Share of the training time that the turns may take, at most: many ranks of a machine read it less often."""


class Reading(NamedTuple):
    """The figures of the yardstick of all workers at one moment. Unknown values are NaN.

    Attributes:
        seconds: CPU time of the piece of work, for each worker.
        others: for each worker, the share that other processes took of the run's core time on the worker's machine
            since the last reading.
        others_s: core-seconds that other processes took from the run on all machines.
        cores_s: core-seconds to which the run was entitled on all machines.
    """

    seconds: np.ndarray
    others: np.ndarray
    others_s: float
    cores_s: float


class Work:
    """The timed piece of work: arithmetic on small buffers that stay in the caches.

    It evicts no more of the caches than its buffers need. The first pass loads the buffers and is not timed. The
    quickest of the other passes counts, so that an interrupt or a core that has just been idle does not matter. The
    buffers are aligned to pages: at other addresses, vector instructions take up to 6 % longer, and two processes would
    differ.
    """

    def __init__(self) -> None:
        pages = np.frombuffer(mmap.mmap(-1, 2 * ELEMENTS * 4), np.float32)
        self._source, self._target = pages[:ELEMENTS], pages[ELEMENTS:]
        self._source[:] = np.linspace(1, 2, ELEMENTS)

    def measure(self) -> float:
        """Return the CPU time of the work, in seconds."""
        self._take_pass()
        times = [time.thread_time()]
        for _ in range(PASSES):
            self._take_pass()
            times.append(time.thread_time())
        return PASSES * min(after - before for before, after in itertools.pairwise(times))

    def _take_pass(self) -> None:
        for _ in range(REPEATS):
            np.multiply(self._source, self._source, out=self._target)
            np.add(self._target, 1, out=self._target)
            np.sqrt(self._target, out=self._target)


class Yardstick:
    """Measures the yardstick on the workers of one run. All workers construct it and call its methods together.

    Each rank must be pinned to its cores before. If the run may use more cores of a machine than it needs, other
    processes may use the unneeded cores without disturbing it.

    Args:
        comm: one rank for each worker.
        threads: number of threads of each worker.
        served: whether there is also a dedicated server. Then the time of other processes is unknown, unless each
            worker is pinned to cores of its own.
    """

    def __init__(self, comm: MPI.Comm, threads: int, *, served: bool = False) -> None:
        host = socket.gethostname()
        mine = host, core_time.read_kernel_id() or host, os.sched_getaffinity(0)
        everyone = comm.allgather(mine)
        self._comm, self._threads, self._work = comm, threads, Work()
        self.hosts: list[str] = [host for host, _, _ in everyone]
        """For each worker."""
        self._machines: dict[str, list[int]] = {}
        for rank, (_, kernel, _) in enumerate(everyone):
            self._machines.setdefault(kernel, []).append(rank)
        self._cores = {
            kernel: set[int]().union(*(everyone[rank][2] for rank in ranks)) for kernel, ranks in self._machines.items()
        }
        self._is_counted = not served or all(len(affinity) == threads for _, _, affinity in everyone)
        self._kernel = mine[1]
        most = max(map(len, self._machines.values()))
        self.every_s = max(EVERY_S, most * TURN_S / MOST_COST)
        """Training time between two readings, in seconds."""
        self._before: np.ndarray | None = None

    def read(self) -> Reading:
        """Measure the yardstick on all workers, while no other thread of theirs works; return the figures of all."""
        now = time.monotonic(), core_time.measure_process_s(), self._measure_busy_s()
        mine = np.array([*now, self._take_turn()])
        everyone = np.empty((self._comm.size, len(mine)))
        self._comm.Allgather(mine, everyone)  # no worker begins its next step during the turn of another
        clocks, seconds = everyone[:, :3], everyone[:, 3].copy()
        before, self._before = self._before, clocks
        others = np.full(self._comm.size, math.nan)
        if before is None:
            return Reading(seconds, others, 0.0, 0.0)
        passed = clocks - before
        others_s = cores_s = 0.0
        for kernel, ranks in self._machines.items():
            taken, had = self._split(passed[ranks], len(self._cores[kernel]))
            others_s, cores_s = others_s + taken, cores_s + had
            others[ranks] = min(max(taken / had, 0.0), 1.0) if math.isfinite(taken) else math.nan
        return Reading(seconds, others, others_s, cores_s)

    def _split(self, passed: np.ndarray, cores: int) -> tuple[float, float]:
        """Return the core-seconds that other processes took from the run on one machine, and those due to the run.

        Args:
            passed: since the last reading, for each rank of the machine: seconds of wall-clock time, CPU time of its
                process, and core-seconds that all processes used of the machine's cores.
            cores: number of cores of the machine that the run may use.

        The kernel counts in ticks, so the time of others may be below 0; over many readings, this evens out.
        """
        elapsed, _, busy = passed[0]
        used = min(cores, self._threads * len(passed))
        taken = busy - passed[:, 1].sum() if self._is_counted else math.nan
        spare = (cores - used) * elapsed
        had = used * elapsed
        return float(np.maximum(taken - spare, 0.0) if spare else taken), float(had)

    def _measure_busy_s(self) -> float:
        """Return on a machine's first rank the core-seconds that all processes used of its cores; NaN on others.

        The switch of an emulated network belongs to the run, so its time does not count.
        """
        if self._machines[self._kernel][0] != self._comm.rank:
            return math.nan
        return core_time.measure_busy_s(self._cores[self._kernel]) - core_time.measure_switch_s()

    def _take_turn(self) -> float:
        """Measure the work when it is this rank's turn, and sleep during the other turns; return the seconds."""
        began, ranks = time.perf_counter(), self._machines[self._kernel]
        turn = ranks.index(self._comm.rank)
        _sleep_until(began + turn * TURN_S)
        seconds = self._work.measure()
        if turn < len(ranks) - 1:
            _sleep_until(began + len(ranks) * TURN_S)
        return seconds


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))
