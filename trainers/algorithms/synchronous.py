"""Synchronous data-parallel SGD."""

from __future__ import annotations

from trainers.algorithms.base import Algorithm
from trainers.exchange import Traffic


class Synchronous(Algorithm):
    """All workers take the same step along the mean of what they have sent."""

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._lr = lr
        self.parts.exchange.begin(step, epoch=epoch, lr=lr, measure=measure)

    def finish(self) -> Traffic:
        parts = self.parts
        with parts.watch("encode"):
            parts.clipping.local()
        for unit in reversed(parts.units):
            with parts.watch("encode"):
                parts.optimizer.prepare(unit)
            parts.exchange.submit(unit)
        traffic = parts.exchange.finish()
        with parts.watch("update"):
            parts.clipping.final()
            parts.optimizer.step(self._lr)
        return traffic
