"""Time exchanges by plain MPI, with and without stragglers that sleep, as a rank of benchmarks/simulator.py.

    mpirun ... python -m benchmarks.simulator_ranks ASKED FILE

ASKED is JSON: `bytes` of a message, `repeats`, `steps`, `compute_s` and `sigma` of the stragglers. Rank 0 writes FILE:
`latency_s`, one way, of 8 bytes between the first two ranks, and of each exchange `alike`, the seconds of each repeat
until the last one is through, and `stragglers`, (steps, ranks): when each was through with each step.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from reports.scaling.simulator import Compute, graphs

PINGS, WARM_UP = 200, 20
TAG = 7
Exchange = Callable[[], None]


def measure_latency(comm: MPI.Comm) -> float:
    """Return the median seconds, one way, of 8 bytes between ranks 0 and 1; on other ranks 0."""
    word, times = np.zeros(1), []
    for _ in range(WARM_UP + PINGS if comm.rank < 2 else 0):
        begun = time.perf_counter()
        if comm.rank == 0:
            comm.Send(word, 1, TAG)
            comm.Recv(word, 1, TAG)
        else:
            comm.Recv(word, 0, TAG)
            comm.Send(word, 0, TAG)
        times.append((time.perf_counter() - begun) / 2)
    comm.Barrier()
    return statistics.median(times[WARM_UP:] or [0.0])


def exchanges(comm: MPI.Comm, n: int) -> dict[str, Exchange]:
    """Return the exchanges by the names of benchmarks/simulator.py; messages have n bytes."""
    mine, others = np.zeros(n // 4, np.float32), np.zeros((comm.size, n // 4), np.float32)

    def swap(sources: list[int], targets: list[int]) -> None:
        coming = [comm.Irecv(others[source], source, TAG) for source in sources]
        MPI.Request.Waitall(coming + [comm.Isend(mine, target, TAG) for target in targets])

    def gossip(neighbours: graphs.Neighbours) -> Exchange:
        sources = [rank for rank, targets in enumerate(neighbours) if comm.rank in targets]
        return lambda: swap(sources, neighbours[comm.rank])

    def server() -> None:
        workers = list(range(1, comm.size))
        if comm.rank == 0:
            swap(workers, [])
            swap([], workers)
        else:
            swap([], [0])
            swap([0], [])

    return {
        "allreduce": lambda: comm.Allreduce(mine, others[0]),
        "allgather": lambda: comm.Allgather(mine, others),
        "server": server,
        "gossip_ring": gossip(graphs.ring(comm.size)),
        "gossip_exponential": gossip(graphs.exponential(comm.size)),
    }


def alike(comm: MPI.Comm, exchange: Exchange, repeats: int) -> list[float]:
    """Return the seconds of each repeat until the last rank is through, after a repeat that warms up."""
    seconds = []
    for _ in range(repeats + 1):
        comm.Barrier()
        begun = time.perf_counter()
        exchange()
        seconds.append(comm.allreduce(time.perf_counter() - begun, MPI.MAX))
    return seconds[1:]


def stragglers(comm: MPI.Comm, exchange: Exchange, asked: dict[str, Any]) -> list[list[float]]:
    """Return when each rank was through with each step, in seconds since the first rank started, (steps, ranks).

    All ranks read one clock: emulated hosts are of one machine.
    """
    compute = Compute(asked["compute_s"], asked["sigma"])
    times = [compute.draw_times(comm.size, step, asked["seed"])[comm.rank] for step in range(asked["steps"])]
    comm.Barrier()
    begun, through = time.perf_counter(), []
    for seconds in times:
        time.sleep(seconds)
        exchange()
        through.append(time.perf_counter())
    return (np.stack(comm.allgather(through), axis=1) - comm.allreduce(begun, MPI.MIN)).tolist()


def main(given: str, file: str) -> None:
    comm, asked = MPI.COMM_WORLD, json.loads(given)
    measured: dict[str, Any] = {"latency_s": measure_latency(comm), "alike": {}, "stragglers": {}}
    for name, exchange in exchanges(comm, asked["bytes"]).items():
        measured["alike"][name] = alike(comm, exchange, asked["repeats"])
        measured["stragglers"][name] = stragglers(comm, exchange, asked)
    if comm.rank == 0:
        Path(file).write_text(json.dumps(measured), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
