"""Simulate steps of schedules as discrete events, for any schedule and any network."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict

import numpy as np

from reports.scaling.simulator.cluster import Cluster
from reports.scaling.simulator.events import Events
from reports.scaling.simulator.result import Course
from reports.scaling.simulator.schedules import Schedule
from reports.scaling.simulator.step import Step


@dataclasses.dataclass
class _Turn:
    """The messages of an endpoint in a round, in which it sends `sends` and receives a number of messages."""

    number: int
    sends: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    receives: int = 0
    summed: float = 0.0


_Turns = list[list[_Turn]]
_Place = tuple[int, int, int]
"""An endpoint, a step, the number of a round in it."""


def _list_turns(schedule: Schedule, endpoints: int) -> _Turns:
    """Return for each endpoint its turns: the rounds in which it has messages."""
    turns: _Turns = [[] for _ in range(endpoints)]

    def turn(endpoint: int, number: int) -> _Turn:
        own = turns[endpoint]
        if not own or own[-1].number != number:
            own.append(_Turn(number))
        return own[-1]

    for number, one in enumerate(schedule.iterate_rounds()):
        for source, target, n in zip(one.sources.tolist(), one.targets.tolist(), one.bytes.tolist(), strict=True):
            turn(source, number).sends.append((target, n))
            turn(target, number).receives += 1
            turn(target, number).summed += n * one.sums
    return turns


class _EventPlayer:
    """Simulates all endpoints by events; each proceeds independently through the turns (rounds with messages) of its
    steps.
    """

    def __init__(self, cluster: Cluster, step: Step, steps: int, seed: int) -> None:
        self.cluster, self.step, self.steps, self.seed = cluster, step, steps, seed
        self.events = Events(cluster)
        self.turns = [_list_turns(schedule, cluster.endpoints) for schedule in step.schedules]
        self.times = np.zeros((3, steps, cluster.endpoints))  # ready, exchanged, finished
        self.before = [step.draw_before(cluster.workers, number, seed) for number in range(steps)]
        self.place = [(-1, -1)] * cluster.endpoints  # step and place of the turn that each is in
        self.open: dict[_Place, int] = defaultdict(int)  # messages still to leave or come, less those that came early
        self.announced: dict[_Place, list[tuple[int, float]]] = defaultdict(list)  # and wait for their receiver

    def play(self) -> Course:
        for endpoint in range(self.cluster.endpoints):
            self._begin(endpoint, 0)
        self.events.run()
        ready, exchanged, finished = self.times[:, :, : self.cluster.workers]
        return Course(ready, exchanged, finished, "events", exact=True)

    def _begin(self, endpoint: int, step: int) -> None:
        if step == self.steps:
            return
        works = self.before[step][endpoint] if endpoint < self.cluster.workers else 0.0
        ready = self.times[0, step, endpoint] = self.events.now + works
        self.events.schedule(ready, lambda: self._enter(endpoint, step, 0))

    def _enter(self, endpoint: int, step: int, place: int) -> None:
        """Begin a turn: send the messages that can leave, and accept messages that wait for this endpoint."""
        turns = self._get_turns(endpoint, step)
        if place == len(turns):
            self.times[1, step, endpoint] = self.events.now
            after = self.step.after_s if endpoint < self.cluster.workers else 0.0
            finished = self.times[2, step, endpoint] = self.events.now + after
            self.events.schedule(finished, lambda: self._begin(endpoint, step + 1))
            return
        turn = turns[place]
        self.place[endpoint] = step, place
        here = endpoint, step, turn.number
        for target, n in turn.sends:
            if n <= self.cluster.eager_bytes:
                self._send(endpoint, target, n, step, turn.number)
            else:
                there = target, step, turn.number
                latency = self.events.get_latency(endpoint, target)
                self.events.schedule(self.events.now + latency, functools.partial(self._announce, endpoint, n, there))
        for source, n in self.announced.pop(here, ()):
            self._accept(source, n, here)
        self._count(here, len(turn.sends) + turn.receives)

    def _get_turns(self, endpoint: int, step: int) -> list[_Turn]:
        return self.turns[step % len(self.turns)][endpoint]

    def _is_in(self, place: _Place) -> bool:
        endpoint, step, number = place
        at_step, at = self.place[endpoint]
        return at_step == step and self._get_turns(endpoint, step)[at].number == number

    def _announce(self, source: int, n: float, there: _Place) -> None:
        if self._is_in(there):
            self._accept(source, n, there)
        else:
            self.announced[there].append((source, n))

    def _accept(self, source: int, n: float, there: _Place) -> None:
        """Begin an announced message one latency from now, when its sender has heard that the receiver is ready."""
        target, step, number = there
        begin = self.events.now + self.events.get_latency(target, source)
        self.events.schedule(begin, lambda: self._send(source, target, n, step, number))

    def _send(self, source: int, target: int, n: float, step: int, number: int) -> None:
        self.events.send(
            source,
            target,
            n,
            left=lambda: self._count((source, step, number), -1),
            come=lambda: self._count((target, step, number), -1),
        )

    def _count(self, place: _Place, change: int) -> None:
        """Change the number of messages that a turn still waits for; end the turn at 0, unless it has not begun."""
        self.open[place] += change
        if self.open[place] or not self._is_in(place):
            return
        del self.open[place]
        endpoint, step, _ = place
        at = self.place[endpoint][1]
        sums = self._get_turns(endpoint, step)[at].summed * self.cluster.summing_s_per_byte
        self.events.schedule(self.events.now + sums, lambda: self._enter(endpoint, step, at + 1))


def play(cluster: Cluster, step: Step, steps: int, seed: int) -> Course:
    """Simulate all steps; all workers start at the same time."""
    return _EventPlayer(cluster, step, steps, seed).play()
