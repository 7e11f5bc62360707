"""What tests/trainers/network/test_probing.py has real ranks do."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.trainers.ranks.exchange import main
from trainers.network import clocks, collective_times
from trainers.network.clocks import CommonClock

COMM = MPI.COMM_WORLD


class Counting:
    """A communicator that notes what a collective is called with."""

    def __init__(self) -> None:
        self.size = COMM.size
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, arguments))


def operations() -> None:
    """What is called is what training calls, with the bytes that are told; and it works."""
    sizes = [4, 64, 2**22 + 64]
    for collective in collective_times.OPERATIONS:
        told = [size for size, _ in collective_times.build_operations(Counting(), collective, sizes)]  # type: ignore[arg-type]
        parts = [COMM.size * max(1, size // COMM.size) for size in sizes]
        assert told == (parts if collective == "alltoall" else sizes)
        for _, operation in collective_times.build_operations(COMM, collective, sizes):
            operation()
    for name, each, call in (
        ("allreduce", 2**22 + 64, "Allreduce"),
        ("bcast", 64, "Bcast"),
        ("allgather", 64, "Allgatherv"),
    ):
        comm = Counting()
        ((_, operation),) = collective_times.build_operations(comm, name, [each])
        operation()
        names, arguments = zip(*comm.calls, strict=True)
        assert set(names) == {call}
        if name == "allreduce":
            assert all(words[0] is MPI.IN_PLACE and words[2] == MPI.SUM for words in arguments)
            pieces = [words[1][0] for words in arguments]
            assert sum(piece.nbytes for piece in pieces) == each and max(piece.nbytes for piece in pieces) <= 2**21
        if name == "allgather":
            assert arguments[0][0][1] * 4 == each and arguments[0][1][1] == [each // 4] * COMM.size


def probe(seconds: str, largest: str) -> None:
    """All ranks measure the same points, and rank 0's lines are through them."""
    collective_times.LARGEST = int(largest)
    found = collective_times.Probe(COMM, float(seconds), 1e-4).run()
    everyone = COMM.allgather(found)
    assert all(one == found for one in everyone)
    assert list(found) == ["allreduce", "allgather", "alltoall", "bcast"]
    for of in found.values():
        sizes = [point["bytes"] for point in of["points"]]
        assert sizes and sizes == sorted(set(sizes)) and sizes[-1] <= int(largest)
        assert all(0 < p["low_s"] <= p["time_s"] <= p["high_s"] and p["repeats"] > 0 for p in of["points"])
        if len(sizes) > 1:
            assert of["fits"][0]["from_bytes"] == sizes[0] and of["fits"][-1]["to_bytes"] == sizes[-1]
        assert len(of["switch_points"]) == max(0, len(of["fits"]) - 1)
        if of["left_out"] is None:  # else this machine had too much other work
            assert sizes[-1] > int(largest) // 4
        else:
            assert of["left_out"] == {"from_bytes": of["left_out"]["from_bytes"], "for_lack_of": "time"}
            assert of["left_out"]["from_bytes"] > sizes[-1]


def left_out() -> None:
    """What there is no time for, or no memory, is left out, and that is told."""
    slow = collective_times.Probe(COMM, 1.0, 1e-4)
    slow._together = lambda operation, repeats, each: np.full(repeats, 0.11)  # type: ignore[method-assign]
    found = slow.measure_collective("allreduce", [4, 8, 16, 32], 0.2)
    assert [point["bytes"] for point in found["points"]] == [4]
    assert found["left_out"] == {"from_bytes": 8, "for_lack_of": "time"}
    small = collective_times.Probe(COMM, 1.0, 1e-4)
    small._fitting["allgather"] = 8
    found = small.measure_collective("allgather", [4, 8, 16, 32], 10.0)
    assert [point["bytes"] for point in found["points"]] == [4, 8]
    assert found["left_out"] == {"from_bytes": 16, "for_lack_of": "memory"}


def no_time() -> None:
    """Where messages take long whole collectives are left out: a probe ends when it is to."""
    probe, calls = collective_times.Probe(COMM, 0.5, 1e-4), []

    def together(operation: object, repeats: int, each: float) -> Any:
        calls.append(repeats)
        time.sleep(0.3)
        return np.full(repeats, 0.3)

    probe._together = together  # type: ignore[method-assign]
    found = probe.run()
    assert len(calls) <= 2, "two are more than the time"
    for of in found.values():
        assert of["points"] == of["fits"] == of["switch_points"] == []
        assert of["left_out"] == {"from_bytes": 4, "for_lack_of": "time"}


def clock() -> None:
    """Clocks of other machines are brought in line with that of rank 0, and ranks wait by it."""
    real, off, before = time.perf_counter, 1000.0 * COMM.rank, (clocks.time, clocks.identify_machine)
    try:
        clocks.time = SimpleNamespace(perf_counter=lambda: real() + off, sleep=time.sleep)  # type: ignore[assignment]
        clocks.identify_machine = lambda: f"machine {COMM.rank}"  # type: ignore[assignment]
        found = CommonClock(COMM)
        assert not found.one_machine
        assert abs(found.now() - real()) < 10.0  # of 1000: what a message takes on a machine with other work
        moment = COMM.bcast(found.now() + 0.05)
        found.wait_until(moment)
        assert found.now() >= moment
        clocks.identify_machine = lambda: "this machine"  # type: ignore[assignment]
        found = CommonClock(COMM)
        assert found.one_machine and found.now() - real() > off - 10.0
    finally:
        clocks.time, clocks.identify_machine = before  # type: ignore[assignment]


if __name__ == "__main__":
    main(globals())
