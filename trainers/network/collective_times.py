"""Measure the times of the collectives of an exchange for messages of many sizes, within a given time.

The collectives are those of training (trainers/lanes): Allreduce of float32 in place, in pieces of `segment_bytes`;
Allgatherv; Alltoallv; and Bcast. All ranks of a communicator call these functions together; rank 0 decides for all.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainers.mpi.control_variables import ALGORITHMS
from trainers.mpi.message_sizes import segment_bytes
from trainers.network import piecewise_fit
from trainers.network.clocks import CommonClock

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.network.piecewise_fit import Line

SMALLEST, LARGEST = 4, 2**26  # bytes
REPEATS = 60  # of a size at most
FEW = 3  # of a size that takes more than its share of the time; of one whose first repeat does, one less
SMALL_SHARE = 0.3  # of the time for sizes that take little: the more is left for those that take long
CHEAP_S = 0.05  # a first repeat that takes less is a warm-up and does not count
MARGIN = 1.2  # times as long as the first repeat are the others given
PAUSE_S = 0.3e-3  # between two repeats at least
SLOW = 0.3  # of the time: where short messages would take more, three of four sizes of them are left out
SHORT = 2**14  # bytes
MEMORY = 0.25  # share of what is free on a machine that buffers may take

OPERATIONS = {"allreduce": "allreduce", "allgather": "allgatherv", "alltoall": "alltoallv", "bcast": "bcast"}
"""The operations of MPI that collectives are, as in `control_variables.ALGORITHMS`."""

Operation = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Timing:
    """The time of a collective with messages of `bytes`: median and quartiles over its repeats, in seconds."""

    bytes: int
    time_s: float
    low_s: float
    high_s: float
    repeats: int

    @property
    def error(self) -> float:
        """The relative standard error of the median, computed from the quartiles as for normal times."""
        return 1.25 * (self.high_s - self.low_s) / 1.35 / math.sqrt(self.repeats) / self.time_s


def read_algorithm(collective: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the algorithm that Open MPI was told to use; None if Open MPI chooses, or with another MPI."""
    name = OPERATIONS[collective]
    if environment.get("OMPI_MCA_coll_tuned_use_dynamic_rules") not in ("1", "true"):
        return None
    chosen, names = environment.get(f"OMPI_MCA_coll_tuned_{name}_algorithm", ""), ALGORITHMS[name].split()
    return chosen if chosen in names else dict(zip("123456789", names, strict=False)).get(chosen)


def build_operations(comm: MPI.Comm, collective: str, sizes: Sequence[int]) -> Iterator[tuple[int, Operation]]:
    """Yield for each size a pair: the actual message size in bytes, and a function that executes the collective.

    The size is that of one worker's buffer for allreduce and bcast, of a worker's contribution for allgather, and of
    all that a worker sends (its part for itself included) for alltoall.
    """
    from mpi4py import MPI

    workers, largest = comm.size, max(sizes, default=0)
    sent = np.zeros(largest // 4 + workers, np.float32)
    received = np.zeros((workers if collective == "allgather" else 1) * len(sent), np.float32)
    done = set()
    for size in sizes:
        if collective == "alltoall":
            each = max(1, size // workers)
            count, places = [each] * workers, [each * place for place in range(workers)]
            size = each * workers
            buffers = [sent.view(np.uint8), count, places, MPI.BYTE], [received.view(np.uint8), count, places, MPI.BYTE]
            operation = functools.partial(comm.Alltoallv, *buffers)
        elif collective == "allgather":
            words = size // 4
            places = [words * place for place in range(workers)]
            buffers = [sent, words, MPI.INT32_T], [received, [words] * workers, places, MPI.INT32_T]
            operation = functools.partial(comm.Allgatherv, *buffers)
        elif collective == "allreduce":
            pieces = np.array_split(sent[: size // 4], -(-size // segment_bytes(workers)))
            operation = functools.partial(_add_up, comm, pieces)
        else:
            operation = functools.partial(comm.Bcast, [sent, size // 4, MPI.FLOAT])
        if size not in done:
            done.add(size)
            yield size, operation


def _add_up(comm: Any, pieces: Sequence[Any]) -> None:
    from mpi4py import MPI

    for piece in pieces:
        comm.Allreduce(MPI.IN_PLACE, [piece, MPI.FLOAT], MPI.SUM)


class Probe:
    """Measures all collectives on a communicator within `seconds`.

    Args:
        latency_s: time of a small message, one way.
    """

    def __init__(self, comm: MPI.Comm, seconds: float, latency_s: float) -> None:
        self.comm, self.clock = comm, CommonClock(comm)
        self.seconds = seconds
        self._lead_s = 1e-3 + 1.5 * latency_s * math.ceil(math.log2(max(2, comm.size)))
        self._aside_s = 4 * self._lead_s  # of a measurement, beside its repeats: what begins it, and tells all of it
        self._sizes = [2**power for power in range(SMALLEST.bit_length() - 1, LARGEST.bit_length())]
        self._fitting = _largest(comm)

    def run(self) -> dict[str, dict[str, Any]]:
        """Measure all collectives, and return network.json's entry for each; ranks other than 0 return only the
        timings."""
        end = time.perf_counter() + self.seconds
        names = ["bcast", "alltoall", "allgather", "allreduce"]  # what one leaves of its time, the next ones get
        sizes = self._sizes
        least = self._least(names, end)
        if sum(least.values()) * len(sizes) * FEW > SLOW * self.seconds:
            sizes = [size for place, size in enumerate(sizes) if size > SHORT or place % 4 == 0]
        figures = {}
        for place, name in enumerate(names):
            left = end - time.perf_counter()
            fits = 2 * least.get(name, math.inf) <= left
            figures[name] = self.measure_collective(name, sizes, left / (len(names) - place), fits)
        return {name: figures[name] for name in OPERATIONS}

    def measure_collective(
        self, name: str, sizes: Sequence[int], seconds: float, any_of_it: bool = True
    ) -> dict[str, Any]:
        """Return network.json's entry for a collective: times in ascending order of sizes, as far as `seconds` allow.

        Args:
            any_of_it: measure at least the smallest size, even if it takes more than `seconds`; rank 0 decides.
        """
        fitting = [size for size in sizes if size <= self._fitting[name]]
        why = "memory" if len(fitting) < len(sizes) else None
        points: list[Timing] = []
        began, share = time.perf_counter(), SMALL_SHARE * seconds / len(sizes)
        for size, operation in build_operations(self.comm, name, fitting):
            # the time grows at most as the size does
            expected = points[-1].time_s * size / points[-1].bytes if points else 0.0
            left = seconds - (time.perf_counter() - began)
            if not self.comm.bcast(2 * (MARGIN * expected + self._aside_s) <= left if points else any_of_it):
                why = "time"
                break
            points.append(self._time_size(size, operation, share, left))
        last = points[-1].bytes if points else 0
        beyond = next((size for size in sizes if size > last), None)
        lines = fit_lines(points)
        return {
            "points": [dataclasses.asdict(point) for point in points],
            "fits": [describe_line(line, points, read_algorithm(name)) for line in lines],
            "switch_points": find_switch_points(lines, points),
            "left_out": None if beyond is None or why is None else {"from_bytes": beyond, "for_lack_of": why},
        }

    def _least(self, names: Sequence[str], end: float) -> dict[str, float]:
        """Return the seconds that a measurement with the smallest message takes, for each collective.

        Collectives for which there is no time before `end` are left out.
        """
        found: dict[str, float] = {}
        for name in names:
            if self.comm.bcast(time.perf_counter() >= end):
                break
            for _, operation in build_operations(self.comm, name, self._sizes[:1]):
                for _ in range(2):  # the first opens connections
                    found[name] = float(self._together(operation, 1, 0.0)[0]) + self._aside_s
                    if found[name] * len(names) > SLOW * self.seconds:
                        break
        return found

    def _time_size(self, size: int, operation: Operation, share: float, left: float) -> Timing:
        first = float(self._together(operation, 1, 0.0)[0])
        each = MARGIN * first + PAUSE_S
        is_cheap = first < CHEAP_S
        least = FEW if is_cheap else FEW - 1 if first < share else 1
        wanted = min(max(int(share / each), least), REPEATS, max(1, int((left - first) / each)))
        times = self._together(operation, int(self.comm.bcast(wanted)), each)
        if not is_cheap:
            times = np.append(times, first)
        low, middle, high = map(float, np.quantile(times, (0.25, 0.5, 0.75)))
        return Timing(size, middle, low, high, len(times))

    def _together(self, operation: Operation, repeats: int, each: float) -> Any:
        """Repeat the collective every `each` s; return the seconds of those repeats that the ranks began most
        simultaneously.

        The time of a repeat is from the begin of the last rank to the end of the last rank. It is too short if a rank
        begins late, for example because another process used its core, since the others have then done a part already.
        Therefore the half of the repeats with the least simultaneous begins is dropped.
        """
        from mpi4py import MPI

        self.clock.compare()
        self.comm.Barrier()
        begin = self.comm.bcast(self.clock.now() + self._lead_s)
        began, ended = np.empty(repeats), np.empty(repeats)
        for repeat in range(repeats):
            self.clock.wait_until(begin + repeat * each)
            began[repeat] = self.clock.now()
            operation()
            ended[repeat] = self.clock.now()
        all_of = np.stack([began, -began, ended])
        if self.comm.rank == 0:
            self.comm.Reduce(MPI.IN_PLACE, all_of, MPI.MAX)
        else:
            self.comm.Reduce(all_of, None, MPI.MAX)
        self.comm.Bcast(all_of)  # not Allreduce: a ring takes long where the latency is high
        last_began, first_began, last_ended = all_of * [[1], [-1], [1]]
        return np.maximum(last_ended - last_began, 1e-9)[find_most_together(last_began - first_began)]


def find_most_together(apart: Any) -> Any:
    """Return the indices of the half of the repeats (at least FEW, if there are as many) with the smallest `apart`.

    Args:
        apart: (repeats,), the seconds between the begins of the first and the last rank.
    """
    return np.argsort(apart, kind="stable")[: max(-(-len(apart) // 2), FEW)]


def _largest(comm: MPI.Comm) -> dict[str, int]:
    """Return for each collective the largest message in bytes whose buffers fit into the memory of all machines."""
    known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    least = min(comm.allgather(1024 * int(known["MemAvailable"].split()[0])))
    room = int(MEMORY * least / comm.size)  # as if all ranks were on the machine that has least
    return {name: room // (comm.size + 1 if name == "allgather" else 2) for name in OPERATIONS}


def fit_lines(points: Sequence[Timing]) -> list[Line]:
    """Return the lines that `piecewise_fit.fit` fits to these times."""
    return piecewise_fit.fit([p.bytes for p in points], [p.time_s for p in points], [p.error for p in points])


def describe_line(line: Line, points: Sequence[Timing], algorithm: str | None) -> dict[str, Any]:
    """Return a line for network.json: `alpha_s + beta_s_per_byte n` is the time of the whole collective."""
    return {
        "from_bytes": points[line.first].bytes,
        "to_bytes": points[line.last].bytes,
        "alpha_s": line.alpha,
        "beta_s_per_byte": line.beta,
        "residual": line.residual,
        "outliers": [points[place].bytes for place in line.outliers],
        "algorithm": algorithm,
    }


def find_switch_points(lines: Sequence[Line], points: Sequence[Timing]) -> list[int]:
    """Return the sizes in bytes at which one line ends and the next begins.

    Such a size is the geometric mean of the last measured size of a line and the first of the next.
    """
    ends = [(points[line.last].bytes, points[line.last + 1].bytes) for line in lines[:-1]]
    return [round(math.sqrt(last * first)) for last, first in ends]
