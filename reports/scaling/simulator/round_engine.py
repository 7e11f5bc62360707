"""Simulate steps of schedules by recurrences over arrays: a few operations for a round of all workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reports.scaling.simulator.cluster import Cluster, Floats, Ints
from reports.scaling.simulator.planning import SAME, Plan, PlannedRound, plan_schedule
from reports.scaling.simulator.result import Course
from reports.scaling.simulator.schedules import Schedule
from reports.scaling.simulator.sharing import fair_rates
from reports.scaling.simulator.step import Step

_Play = Callable[[Floats], Floats]
"""Returns when endpoints are through from when they begin."""


def _never_meet(rounds: list[PlannedRound], cluster: Cluster) -> bool:
    """Tell whether messages of several workers can never fill a link together, however late some workers are.

    A worker has messages of only one round in transit, and these begin together. If they also end together, and a link
    can carry all that workers could ever send through it, the rate of each message is constant.
    """
    if not rounds:
        return True
    capacities = 1 / cluster.s_per_byte
    is_limited = capacities < capacities[-1]
    pairs, rates = [], []  # links with their senders, as one number, and the most that one sends through the other
    for one in rounds:
        of = one.round.sources
        keys = one.paths * cluster.endpoints + of[:, None]
        alone = _compute_lone_rates(of, keys, one.paths, capacities)  # a sender has all links for itself
        if not _end_together(of, one.round.bytes / alone, one.is_announced):
            return False
        used, places = np.unique(keys[is_limited[one.paths]], return_inverse=True)
        pairs.append(used)
        width = np.count_nonzero(is_limited[one.paths], axis=1)
        rates.append(np.bincount(places, weights=np.repeat(alone, width), minlength=len(used)))
    used, places = np.unique(np.concatenate(pairs), return_inverse=True)
    most = np.zeros(len(used))
    np.maximum.at(most, places, np.concatenate(rates))
    loads = np.bincount(used // cluster.endpoints, weights=most, minlength=len(capacities))
    return bool(np.all(loads <= capacities * (1 + SAME)))


def _compute_lone_rates(senders: Ints, keys: Ints, paths: Ints, capacities: Floats) -> Floats:
    """Return the rates that messages would have if each sender were alone, in bytes per second."""
    if len(np.unique(senders)) == len(senders):
        return np.asarray(capacities[paths].min(axis=1), np.float64)
    own, places = np.unique(keys, return_inverse=True)
    links = np.zeros(len(own), np.int64)
    links[places.ravel()] = paths.ravel()
    return fair_rates(places.reshape(paths.shape), capacities[links])


def _end_together(senders: Ints, wire_s: Floats, is_announced: np.ndarray) -> bool:
    """Tell whether the messages of each sender end at the same time; a single message does."""
    if len(np.unique(senders)) == len(senders):
        return True
    order = np.argsort(senders, kind="stable")
    is_next = np.diff(senders[order]) == 0
    sorted_s = wire_s[order]
    is_alike = np.abs(np.diff(sorted_s)) <= SAME * sorted_s[1:]
    return not is_announced.any() and bool(np.all(is_alike[is_next]))


class _MeetingWatch:
    """Checks whether messages of several workers met on a link in a way that changes their rates.

    Their rates stay if all messages that together fill a link begin and end together, and if the link is free before
    the next round needs it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.s_per_byte = cluster.s_per_byte
        self.is_limited = self.s_per_byte > self.s_per_byte[-1]
        self.busy = np.full(len(self.s_per_byte), -np.inf)  # until when, of each link
        self.exact = True

    def see(self, one: PlannedRound, begun: Floats, left: Floats) -> None:
        links, width = one.paths.ravel(), one.paths.shape[1]
        load = np.bincount(links, weights=np.repeat(one.rates, width), minlength=len(self.busy))
        count = np.bincount(links, minlength=len(self.busy))
        is_full = (count > 1) & (load * self.s_per_byte > 1 - SAME)
        first_begun, last_begun = self._find_extremes(links, np.repeat(begun, width))
        first_left, last_left = self._find_extremes(links, np.repeat(left, width))
        slack = SAME * left.max()
        is_together = (last_begun - first_begun <= slack) & (last_left - first_left <= slack)
        is_as_planned = (is_together | ~is_full) & (self.busy <= first_begun + slack)
        self.exact &= bool(np.all(is_as_planned[self.is_limited & (count > 0)]))
        self.busy = np.maximum(self.busy, last_left)

    def delay(self, links: Ints, by: float) -> None:
        """Record that the rounds checked last are repeated and keep these links busy for this time longer."""
        self.busy[links] += by

    def _find_extremes(self, links: Ints, times: Floats) -> tuple[Floats, Floats]:
        """Return the first and the last time of the messages of each link."""
        first, last = np.full(len(self.busy), np.inf), np.full(len(self.busy), -np.inf)
        np.minimum.at(first, links, times)
        np.maximum.at(last, links, times)
        return first, last


def _slide_maximum(times: Floats, shift: int, low: int, high: int, slope: float) -> Floats:
    """Return the maximum of times[i - j shift] + j slope over j from low to high, by doubling the window."""
    best, span = times, 1
    while span <= high - low:
        more = min(span, high - low + 1 - span)
        best = np.maximum(best, np.roll(best, more * shift) + more * slope)
        span += more
    return np.roll(best, low * shift) + low * slope


def _play_ring(one: PlannedRound, times: Floats) -> Floats:
    """Simulate at once all repeats of a round in which each worker sends equally many bytes to the worker `shift`
    ahead.

    A round is max(t[i] + w, t[i - s] + l + w) with s for the shift, w for the time of the bytes and l for the latency.
    Repeated k times, it is the maximum over j of t[i - j s] + j l + k w for j from 0 to k. With announced messages it
    is max(t[i + s] + l, t[i] + 2 l, t[i - s] + 3 l) + w, and j goes from -k to k.
    """
    assert one.shift is not None
    repeats, latency = one.round.repeats, float(one.latency_s[0])
    is_announced = bool(one.is_announced[0])
    each = one.wire_s[0] + one.sums_s[0] + 2 * latency * is_announced
    after = times.copy()
    ring = _slide_maximum(times[: one.members], one.shift, -repeats * is_announced, repeats, latency)
    after[: one.members] = ring + repeats * each
    return after


class _RoundPlayer:
    """Simulates the rounds of a step's schedules on a cluster."""

    def __init__(self, cluster: Cluster, schedules: tuple[Schedule, ...]) -> None:
        self.plans = [plan_schedule(schedule, cluster) for schedule in schedules]
        is_safe = _never_meet([one for plan in self.plans for one in plan.list_rounds()], cluster)
        self.watch = None if is_safe else _MeetingWatch(cluster)

    def play_plan(self, plan: Plan, times: Floats) -> Floats:
        """Return the times at which endpoints finish the rounds of a plan, if they begin them at `times`."""

        def once(times: Floats) -> Floats:
            for one in plan.members:
                times = self.play_plan(one, times) if isinstance(one, Plan) else self._play_round(one, times)
            return times

        return self._repeat(once, times, plan.repeats, 2, list(plan.list_rounds()))

    def _play_round(self, one: PlannedRound, times: Floats) -> Floats:
        """Simulate all repeats of a round."""
        if self.watch is None and one.shift is not None:
            return _play_ring(one, times)

        def once(times: Floats) -> Floats:
            times, begun, left = one.advance(times)
            if self.watch is not None and self.watch.exact:
                self.watch.see(one, begun, left)
            return times

        return self._repeat(once, times, one.repeats, one.members, [one])

    def _repeat(self, once: _Play, times: Floats, repeats: int, period: int, rounds: list[PlannedRound]) -> Floats:
        """Simulate a round or schedule repeatedly, until a period of repetitions advances all endpoints as the one
        before did.

        The times at which endpoints finish are sums and maxima of those at which they begin (max-plus linear).
        Repetitions of such a system become periodic (Baccelli, Cohen, Olsder and Quadrat, "Synchronization and
        Linearity", 1992, section 3.7), so the remaining periods are computed at once.

        Args:
            period: the number of repetitions in a period: W for messages round a ring of W, in which a late worker's
                delay travels round; 2 for whole schedules, since a delay that two workers swap returns in the second
                repetition.
            rounds: the repeated rounds.
        """
        if repeats < 2 * period:  # the usual case: they are over before a period shows
            for _ in range(repeats):
                times = once(times)
            return times
        ends = np.unique(np.concatenate([end for one in rounds for end in (one.round.sources, one.round.targets)]))
        links = np.unique(np.concatenate([one.paths.ravel() for one in rounds]))
        begun, periods = times, 0
        for done in range(1, repeats + 1):
            times = once(times)
            if done % period:
                continue
            moved = times[ends] - begun[ends]
            is_same = np.ptp(moved) <= SAME * moved.max()
            periods = periods + 1 if is_same else 0
            begun = times
            if periods > 1:  # the second shows that the first is a period
                more, rest = divmod(repeats - done, period)
                times = times.copy()
                times[ends] += more * moved.max()
                if self.watch is not None:
                    self.watch.delay(links, more * moved.max())
                for _ in range(rest):
                    times = once(times)
                break
        return times

    @property
    def exact(self) -> bool:
        return self.watch is None or self.watch.exact


def play(cluster: Cluster, step: Step, steps: int, seed: int) -> Course:
    """Simulate all steps; all workers start at the same time."""
    course = _RoundPlayer(cluster, step.schedules)
    ready, exchanged, finished = np.zeros((3, steps, cluster.endpoints))
    workers = cluster.workers
    now = np.zeros(cluster.endpoints)
    for number in range(steps):
        now[:workers] += step.draw_before(workers, number, seed)
        ready[number] = now
        now = exchanged[number] = course.play_plan(course.plans[number % len(course.plans)], now)
        now = now + np.where(np.arange(cluster.endpoints) < workers, step.after_s, 0.0)
        finished[number] = now
    return Course(ready[:, :workers], exchanged[:, :workers], finished[:, :workers], "rounds", course.exact)
