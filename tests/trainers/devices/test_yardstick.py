"""The yardstick: its work, its turns, and what it says of other processes."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

from tests.trainers.start_ranks import run_ranks
from trainers.devices import core_time, yardstick
from trainers.devices.yardstick import MOST_COST, PASSES, TURN_S, Work, Yardstick


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 3])
def test_runs_read_it(workers: int) -> None:
    run_ranks(workers, "read", "+", "seldom", "+", "resumed", "+", "served", module="tests.trainers.ranks.yardstick")


def test_the_work_is_the_median_of_its_passes_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in one pass does not count, and neither does the pass that loads the caches."""
    passes = iter([100.0, 1.0, 9.0, 1.0, 2.0, 1.0])
    now = [0.0]
    work = Work()
    monkeypatch.setattr(yardstick.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(work, "_take_pass", lambda: now.__setitem__(0, now[0] + next(passes)))
    assert work.measure() == PASSES * 1.0 and list(passes) == []


def test_the_work_computes() -> None:
    work = Work()
    assert work.measure() > 0
    assert np.allclose(work._target, np.sqrt(np.linspace(1, 2, yardstick.ELEMENTS) ** 2 + 1))
    assert work._source.ctypes.data % 4096 == 0


class Placed:
    """One rank of a communicator, whose ranks have the same kernel, or as many on each kernel as it says.

    Args:
        affinities: the cores that each rank may use.
        kernels: of each rank; None: all the same.
    """

    def __init__(self, rank: int, affinities: list[set[int]], kernels: str | None = None) -> None:
        self.rank, self.size = rank, len(affinities)
        self._affinities, self._kernels = affinities, kernels or "k" * len(affinities)
        self.rows: list[list[list[float]]] = []

    def allgather(self, mine: tuple[str, str, set[int]]) -> list[tuple[str, str, set[int]]]:
        assert mine[2] == os.sched_getaffinity(0)
        return [
            (f"host{kernel}", kernel if kernel != "k" else mine[1], cores)
            for kernel, cores in zip(self._kernels, self._affinities, strict=True)
        ]

    def Allgather(self, mine: np.ndarray, everyone: np.ndarray) -> None:
        everyone[:] = self.rows.pop(0)


def build(affinities: list[set[int]], *rows: list[list[float]], threads: int = 1, **more: Any) -> Yardstick:
    comm = Placed(0, affinities, more.pop("kernels", None))
    comm.rows = list(rows)
    return Yardstick(comm, threads, **more)  # type: ignore[arg-type]


NAN = math.nan


def test_the_first_reading_knows_nothing_of_others() -> None:
    reading = build([{0}, {1}], [[0, 5, 5, 0.001], [0, 5, NAN, 0.002]]).read()
    assert reading.seconds.tolist() == [0.001, 0.002] and np.isnan(reading.others).all()
    assert (reading.others_s, reading.cores_s) == (0, 0)


@pytest.mark.parametrize(
    ("affinities", "threads", "busy", "processes", "taken", "had"),
    [
        ([{0}, {1}], 1, 20.0, [10, 10], 0, 20),  # all that was used, the run used
        ([{0}, {1}], 1, 8.0, [4, 4], 0, 20),  # the run slept
        ([{0}, {1}], 1, 20.0, [10, 4], 6, 20),
        ([{0}, {1}], 1, 18.0, [8, 4], 6, 20),
        ([{0, 1}, {0, 1}], 1, 20.0, [7, 7], 6, 20),  # cores of both
        ([{0, 1, 2, 3}, {0, 1, 2, 3}], 1, 25.0, [10, 10], 0, 20),  # others had two more cores to be on
        ([{0, 1, 2, 3}, {0, 1, 2, 3}], 1, 40.0, [7, 7], 6, 20),
        ([{0, 1, 2, 3}, {0, 1, 2, 3}], 2, 25.0, [10, 10], 5, 40),  # two threads each
        ([{0}, {0}, {0}], 1, 10.0, [3, 3, 3], 1, 10),  # more ranks than cores: what they take from each other is theirs
        ([{0}, {1}], 1, 19.5, [10, 10], -0.5, 20),  # counted less than there was: ticks
    ],
)
def test_what_others_took(
    affinities: list[set[int]], threads: int, busy: float, processes: list[float], taken: float, had: float
) -> None:
    begin = [[100.0, 1.0, 50.0, 1e-3], *([100.0, 2.0, NAN, 1e-3] for _ in affinities[1:])]
    end = [[row[0] + 10, row[1] + process, row[2] + busy, 1e-3] for row, process in zip(begin, processes, strict=True)]
    found = build(affinities, begin, end, threads=threads)
    found.read()
    reading = found.read()
    assert (reading.others_s, reading.cores_s) == (taken, had)
    assert reading.others.tolist() == [max(taken / had, 0)] * len(affinities)


def test_each_machine_counts_its_own() -> None:
    begin = [[0.0, 0.0, 0.0, 1e-3], [0.0, 0.0, NAN, 1e-3], [0.0, 0.0, 0.0, 1e-3]]
    end = [[10.0, 9.0, 20.0, 1e-3], [10.0, 10.0, NAN, 1e-3], [10.0, 5.0, 9.0, 1e-3]]
    found = build([{0}, {1}, {0}], begin, end, kernels="aab")
    assert found.hosts == ["hosta", "hosta", "hostb"] and found.every_s == max(
        yardstick.EVERY_S, 2 * TURN_S / MOST_COST
    )
    found._kernel = "a"
    found.read()
    reading = found.read()
    assert reading.others.tolist() == [0.05, 0.05, 0.4] and (reading.others_s, reading.cores_s) == (5, 30)


def test_what_cannot_be_known_is_not_told() -> None:
    begin, end = [[0.0, 0.0, NAN, 1e-3]], [[10.0, 5.0, NAN, 1e-3]]
    for found in (build([{0}], begin, end), build([{0, 1}], [[0.0] * 4], [[10.0, 5.0, 0.0, 1e-3]], served=True)):
        found.read()
        reading = found.read()
        assert math.isnan(reading.others_s) and np.isnan(reading.others).all()
    beside = build([{0}], [[0.0] * 4], [[10.0, 5.0, 10.0, 1e-3]], served=True)  # the server has another core
    beside.read()
    assert beside.read().others_s == 5


@pytest.mark.parametrize(("rank", "moments"), [(0, [0.0, 3 * TURN_S]), (1, [TURN_S, 3 * TURN_S]), (2, [2 * TURN_S])])
def test_the_others_sleep_while_a_rank_has_its_turn(
    rank: int, moments: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(yardstick, "_sleep_until", slept.append)
    monkeypatch.setattr(yardstick.time, "perf_counter", lambda: 0.0)
    comm = Placed(rank, [{0}] * 3)
    comm.rows = [[[0.0] * 4] * 3]
    Yardstick(comm, 1).read()  # type: ignore[arg-type]
    assert slept == moments


def test_many_ranks_of_a_machine_read_it_less_often() -> None:
    assert build([{0}]).every_s == yardstick.EVERY_S
    assert build([{0}] * 64).every_s == pytest.approx(64 * TURN_S / MOST_COST)


def test_the_kernel_of_this_machine_tells_its_times() -> None:
    assert core_time.read_kernel_id() == core_time.read_kernel_id()
    assert core_time.measure_process_s() > 0
