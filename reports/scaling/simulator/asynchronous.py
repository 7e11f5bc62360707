"""Simulate asynchronous training against a dedicated server, as discrete events."""

from __future__ import annotations

from collections import deque

import numpy as np

from reports.scaling.simulator.cluster import Cluster
from reports.scaling.simulator.events import Action, Events
from reports.scaling.simulator.result import Course
from reports.scaling.simulator.step import Asynchronous


class _ServerPlayer:
    def __init__(self, cluster: Cluster, step: Asynchronous, steps: int, seed: int) -> None:
        self.workers, self.step, self.steps = cluster.workers, step, steps
        self.server, self.eager_bytes = cluster.workers, cluster.eager_bytes
        self.events = Events(cluster)
        self.times = np.zeros((3, steps, cluster.workers))  # ready, exchanged, finished
        self.before = [step.draw_before(cluster.workers, number, seed) for number in range(steps)]
        self.taken = [0] * cluster.workers  # gradients of each that the server has taken
        self.queue: deque[int] = deque()  # workers whose gradients have come
        self.held: list[int] = []  # workers too far ahead to be answered
        self.is_busy = False

    def play(self) -> Course:
        for worker in range(self.workers):
            self._begin(worker, 0)
        self.events.run()
        ready, exchanged, finished = self.times
        return Course(ready, exchanged, finished, "events", exact=True)

    def _begin(self, worker: int, step: int) -> None:
        if step == self.steps:
            return
        ready = self.times[0, step, worker] = self.events.now + self.before[step][worker]
        self.events.schedule(
            ready, lambda: self._send(worker, self.server, self.step.push_bytes, lambda: self._receive(worker))
        )

    def _send(self, source: int, target: int, n: float, come: Action) -> None:
        """Send a message to a receiver that is waiting; a message that must be announced begins two latencies later."""
        asking = 2 * self.events.get_latency(source, target) if n > self.eager_bytes else 0.0
        self.events.schedule(self.events.now + asking, lambda: self.events.send(source, target, n, lambda: None, come))

    def _receive(self, worker: int) -> None:
        self.queue.append(worker)
        if not self.is_busy:
            self._take()

    def _take(self) -> None:
        self.is_busy = bool(self.queue)
        if self.is_busy:
            worker = self.queue.popleft()
            self.events.schedule(self.events.now + self.step.server_s, lambda: self._finish_update(worker))

    def _finish_update(self, worker: int) -> None:
        self.taken[worker] += 1
        self.held.append(worker)
        slowest = min(self.taken)
        answered = [one for one in self.held if self.taken[one] - slowest <= self.step.staleness]
        self.held = [one for one in self.held if one not in answered]
        for one in answered:
            self._answer(one)
        self._take()

    def _answer(self, worker: int) -> None:
        self._send(self.server, worker, self.step.pull_bytes, lambda: self._finish_step(worker))

    def _finish_step(self, worker: int) -> None:
        step = self.taken[worker] - 1
        self.times[1, step, worker] = self.events.now
        finished = self.times[2, step, worker] = self.events.now + self.step.after_s
        self.events.schedule(finished, lambda: self._begin(worker, step + 1))


def play(cluster: Cluster, step: Asynchronous, steps: int, seed: int) -> Course:
    """Simulate all steps; all workers start at the same time."""
    return _ServerPlayer(cluster, step, steps, seed).play()
