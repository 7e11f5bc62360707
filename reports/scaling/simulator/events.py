"""Discrete events: a clock, and messages that share links by max-min fairness from one event to the next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import numpy as np

from reports.scaling.simulator.cluster import Cluster, Ints
from reports.scaling.simulator.sharing import fair_rates

_SAME = 1 + 1e-12
"""Relative difference of times that count as equal: they are sums of the same parts in another order."""

Action = Callable[[], None]


class Events:
    """The state of a simulation: a heap of future actions, and all messages in transit.

    Attributes:
        now: the simulated time in seconds.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.now = 0.0
        self._cluster = cluster
        s_per_byte = cluster.s_per_byte
        self._capacities, self._is_limited = 1 / s_per_byte, s_per_byte > s_per_byte[-1]
        self._heap: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()  # actions at the same time are done in the order in which they were scheduled
        self._ways: dict[tuple[int, int], tuple[Ints, float]] = {}
        self._paths = np.zeros((0, 3), np.int64)
        self._rates = self._ends = np.zeros(0)
        self._left = np.zeros(0, object)  # what to do when the last byte of each message has left
        self._new: list[tuple[Ints, float, Action]] = []
        self._changed = np.zeros(len(s_per_byte), bool)  # links whose messages have changed since the last rates
        self._has_changed = False
        self._places = np.zeros(len(s_per_byte), np.int64)  # of links among those that are looked at

    def schedule(self, time: float, action: Action) -> None:
        """Schedule an action for this simulated time."""
        heapq.heappush(self._heap, (time, next(self._numbers), action))

    def get_latency(self, source: int, target: int) -> float:
        """Return the one-way latency in seconds."""
        return self._find_way(source, target)[1]

    def send(self, source: int, target: int, n: float, left: Action, come: Action) -> None:
        """Begin to send n bytes now; call `left` when the last byte has left, and `come` one latency later."""
        path, latency = self._find_way(source, target)

        def leave() -> None:
            self.schedule(self.now + latency, come)
            left()

        self._new.append((path, n, leave))
        self._has_changed = True

    def run(self) -> None:
        """Execute all actions in order of time until none is left."""
        while True:
            due = self._heap[0][0] if self._heap else np.inf
            if self._has_changed and due > self.now * _SAME:  # rates are set once for all actions at the same time
                self._share()
            end = self._ends.min() if len(self._ends) else np.inf
            if due <= end and due < np.inf:
                self.now = max(self.now, due)
                heapq.heappop(self._heap)[2]()
            elif end < np.inf:
                self.now = max(self.now, float(end))
                self._finish()
            else:
                return

    def _find_way(self, source: int, target: int) -> tuple[Ints, float]:
        if (source, target) not in self._ways:
            ends = np.array([source]), np.array([target])
            self._ways[source, target] = self._cluster.find_paths(*ends), float(self._cluster.get_latencies(*ends)[0])
        return self._ways[source, target]

    def _finish(self) -> None:
        """Remove the messages whose last byte has left."""
        stay = self._ends > self.now * _SAME
        gone, self._left = self._left[~stay], self._left[stay]
        self._changed[self._paths[~stay]] = self._has_changed = True
        self._paths, self._rates, self._ends = self._paths[stay], self._rates[stay], self._ends[stay]
        for action in gone:
            action()

    def _share(self) -> None:
        """Start new messages, and set the rates of all messages whose links have changed."""
        remaining = (self._ends - self.now) * self._rates
        if self._new:
            paths = np.concatenate([path for path, _, _ in self._new])
            self._changed[paths] = True
            self._paths = np.concatenate([self._paths, paths])
            self._rates, self._ends = (np.append(each, np.zeros(len(paths))) for each in (self._rates, self._ends))
            remaining = np.append(remaining, [n for _, n, _ in self._new])
            self._left = np.append(self._left, [action for _, _, action in self._new])
            self._new = []
        places = self._find_concerned()
        paths = self._paths[places]
        self._changed[paths] = True
        links = np.flatnonzero(self._changed)
        self._places[links] = np.arange(len(links))
        rates = fair_rates(self._places[paths], self._capacities[links])
        self._rates[places] = rates
        self._ends[places] = self.now + np.maximum(remaining[places], 0.0) / rates
        self._changed[:] = self._has_changed = False

    def _find_concerned(self) -> Ints:
        """Return the positions of all messages that share changed links, directly or through other messages."""
        found = np.zeros(0, np.int64)
        while True:
            self._changed &= self._is_limited
            concerned = np.flatnonzero(self._changed[self._paths].any(axis=1))
            if len(concerned) == len(found):
                return concerned
            found = concerned
            self._changed[self._paths[found]] = True
