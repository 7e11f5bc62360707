"""Which run is next, in a simulated machine: the first in the queue, and nobody is held up by who overtakes."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.executors.backlog import Amounts, Backlog, Entry, add, fits, reserve, subtract


class Job(NamedTuple):
    """What is asked for, how long it is believed to take, and how long it takes."""

    name: int
    wants: Amounts
    believed: float | None
    takes: float


class Machine:
    """Does with a backlog what SlotExecutor does, with a clock of its own."""

    def __init__(self, there: Amounts) -> None:
        self.there = self.free = there
        self.backlog: Backlog[Job] = Backlog()
        self.running: list[tuple[Job, float, float | None]] = []  # when it ends, and when it is believed to
        self.now = 0.0
        self.started: dict[int, float] = {}
        self.overtook: list[tuple[Job, Job]] = []
        self.first_promise: dict[int, float] = {}

    def submit(self, *jobs: Job) -> None:
        self.backlog.add(Entry(job, job.wants, job.believed) for job in jobs)
        self.dispatch()

    def start(self, entry: Entry[Job]) -> None:
        job = entry.item
        assert fits(job.wants, self.free), "double-booked"
        self.backlog.remove(entry)
        self.free = subtract(self.free, job.wants)
        believed = None if job.believed is None else self.now + job.believed
        self.running.append((job, self.now + job.takes, believed))
        self.started[job.name] = self.now

    def dispatch(self) -> None:
        while (head := self.backlog.head) is not None and fits(head.wants, self.free):
            self.start(head)
        if head is not None:
            for entry in self.backlog.backfill(self.free, [(job.wants, end) for job, _, end in self.running], self.now):
                self.overtook.append((entry.item, head.item))
                self.start(entry)
            if head.promised < math.inf:
                self.first_promise.setdefault(head.item.name, head.promised)

    def step(self) -> bool:
        """Go on to the next end; False where nothing runs."""
        if not self.running:
            return False
        self.now = min(end for _, end, _ in self.running)
        for each in [each for each in self.running if each[1] <= self.now]:
            self.running.remove(each)
            self.free = add(self.free, each[0].wants)
        self.dispatch()
        return True


CORES, GPUS, PLACES = 8, 2, 4
wants = st.tuples(st.integers(0, CORES), st.integers(0, GPUS), st.just(1))
times = st.integers(1, 50).map(float)


@st.composite
def jobs(draw: st.DrawFn, exact: bool) -> list[Job]:
    """With estimates that are right, or with whatever estimates."""
    found = []
    for name in range(draw(st.integers(1, 25))):
        takes = draw(times)
        believed = takes if exact else draw(st.none() | times)
        found.append(Job(name, draw(wants), believed, takes))
    return found


def run(queue: list[Job], batches: int) -> Machine:
    machine = Machine((CORES, GPUS, PLACES))
    size = -(-len(queue) // batches)
    for start in range(0, len(queue), size):  # arrivals while others run
        machine.submit(*queue[start : start + size])
        machine.step()
    while machine.step():
        pass
    return machine


@given(jobs(exact=False), st.integers(1, 4))
def test_every_run_starts_and_nothing_is_double_booked(queue: list[Job], batches: int) -> None:
    machine = run(queue, batches)
    assert set(machine.started) == {job.name for job in queue}
    assert machine.free == machine.there


@given(jobs(exact=True), st.integers(1, 4))
def test_the_head_starts_when_its_first_reservation_says_or_before(queue: list[Job], batches: int) -> None:
    machine = run(queue, batches)
    for name, promised in machine.first_promise.items():
        assert machine.started[name] <= promised


@given(jobs(exact=True))
def test_backfill_never_delays_the_head(queue: list[Job]) -> None:
    """What runs when a head is first refused is all that it waits for, whoever overtakes it."""
    machine = Machine((CORES, GPUS, PLACES))
    waited: dict[int, float] = {}

    class Watched(Machine):
        def dispatch(self) -> None:
            while (head := self.backlog.head) is not None and fits(head.wants, self.free):
                self.start(head)
            if head is not None and head.item.name not in waited:
                free = self.free
                for job, end, _ in sorted(self.running, key=lambda each: each[1]):
                    free = add(free, job.wants)
                    if fits(head.wants, free):
                        waited[head.item.name] = end
                        break
            super().dispatch()

    machine = Watched((CORES, GPUS, PLACES))
    machine.submit(*queue)
    while machine.step():
        pass
    for name, at_the_latest in waited.items():
        assert machine.started[name] <= at_the_latest


@given(jobs(exact=False).map(lambda queue: [job._replace(believed=None) for job in queue]), st.integers(1, 3))
def test_without_estimates_strictly_in_order(queue: list[Job], batches: int) -> None:
    assert not run(queue, batches).overtook


@given(jobs(exact=False), st.lists(times, min_size=60, max_size=60))
def test_wrong_estimates_and_endless_arrivals_starve_nobody(queue: list[Job], more: list[float]) -> None:
    """Small runs that are believed to be short, but are not, arrive all the time."""
    machine = Machine((CORES, GPUS, PLACES))
    machine.submit(*queue)
    for number, takes in enumerate(more):
        machine.submit(Job(1000 + number, (1, 0, 1), 0.5, takes))
        machine.step()
    while machine.step():
        pass
    first_arrival = [machine.started[job.name] for job in queue]
    # each of the queue's own runs, one after the other, with the longest that may have overtaken before each
    assert max(first_arrival) <= sum(job.takes for job in queue) + 50 * (len(queue) + 1)


def test_what_is_added_later_comes_later() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add([Entry("small", (1, 0, 1), 1.0)])
    backlog.add([Entry("large", (8, 0, 1), 100.0)])
    assert backlog.head is not None and backlog.head.item == "small" and len(backlog) == 2


@pytest.fixture
def backlog() -> Backlog[str]:
    """On four cores, one of which is free: the head wants three."""
    made: Backlog[str] = Backlog()
    made.add([Entry("head", (3,), 100.0)])
    return made


def overtakers(backlog: Backlog[str], *ends: float | None, free: int = 1, now: float = 0.0) -> list[str]:
    return [entry.item for entry in backlog.backfill((free,), [((1,), end) for end in ends], now)]


def test_a_run_that_ends_before_the_head_could_start_overtakes_it(backlog: Backlog[str]) -> None:
    backlog.add([Entry("fits", (1,), 10.0)])
    assert overtakers(backlog, 5.0, 10.0, 11.0) == ["fits"]
    assert backlog.head is not None and backlog.head.promised == 10.0


def test_a_run_that_would_end_later_does_not(backlog: Backlog[str]) -> None:
    backlog.remove(next(iter(backlog)))
    backlog.add([Entry("head", (4,), 100.0)])
    backlog.add([Entry("longer", (1,), 11.1)])
    backlog.add([Entry("nobody knows", (1,))])
    assert overtakers(backlog, 5.0, 10.0, 11.0) == []


def test_a_run_that_leaves_the_head_enough_does(backlog: Backlog[str]) -> None:
    """At 5 s four are free, of which it wants three."""
    backlog.add([Entry("one", (1,), 1000.0)])
    backlog.add([Entry("another", (1,), 1000.0)])
    backlog.add([Entry("nobody knows", (1,))])
    assert overtakers(backlog, 5.0, 5.0, 11.0, free=2) == ["one"]


def test_where_nobody_knows_an_end_nobody_overtakes(backlog: Backlog[str]) -> None:
    backlog.add([Entry("fits", (1,), 1.0)])
    assert overtakers(backlog, 5.0, None, None) == []
    assert overtakers(backlog, 5.0, 10.0, None) == ["fits"], "what is known is enough"


def test_once_a_promise_is_broken_nobody_overtakes(backlog: Backlog[str]) -> None:
    backlog.add([Entry("fits", (1,), 1.0)])
    assert overtakers(backlog, 5.0, 10.0, now=2.0) == ["fits"]
    assert overtakers(backlog, 5.0, 30.0, now=10.5) == []


def test_a_run_that_takes_longer_than_believed_ends_any_moment() -> None:
    assert reserve((2,), (1,), [((1,), 5.0)], now=7.0) == (7.0, (0,))
    assert reserve((2,), (1,), [((1,), 9.0)], now=7.0) == (9.0, (0,))
    assert reserve((3,), (1,), [((1,), 9.0)], now=7.0) is None, "others hold what it waits for"
