"""Synchronous data-parallel SGD."""

from __future__ import annotations

from trainers.algorithms.base import Algorithm, Parts
from trainers.exchange.base import Traffic
from trainers.gradients.arrivals import Arrivals
from trainers.gradients.flat import Unit
from trainers.optimizers.base import Optimizer


class Synchronous(Algorithm):
    """All workers take the same step along the mean of what they have sent."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        prepares = type(parts.optimizer).prepare is not Optimizer.prepare
        self._arrivals = Arrivals(parts.flat, parts.units, self._submit if prepares else parts.exchange.submit)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._lr = lr
        self.parts.exchange.begin(step, epoch=epoch, lr=lr, measure=measure)

    def ready(self) -> None:
        if self.parts.exchange.takes_early and not self.parts.clipping.needs_whole:
            self.parts.exchange.collectives.is_early = True
            self._arrivals.expect()

    def _submit(self, unit: Unit) -> None:
        with self.parts.watch("encode"):
            self.parts.optimizer.prepare(unit)
        self.parts.exchange.submit(unit)

    def finish(self) -> Traffic:
        parts = self.parts
        with parts.watch("encode"):
            parts.clipping.local()
        parts.exchange.collectives.is_early = False
        self._arrivals.flush()
        traffic = parts.exchange.finish()
        with parts.watch("update"):
            parts.clipping.final()
            parts.optimizer.step(self._lr)
        return traffic
