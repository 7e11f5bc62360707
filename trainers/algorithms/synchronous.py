"""Synchronous data-parallel SGD."""

from __future__ import annotations

from typing import Any

from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.exchange.base import Traffic
from trainers.gradients.arrivals import Arrivals
from trainers.gradients.flat import Unit
from trainers.optimizers.base import Optimizer


class Synchronous(Algorithm):
    """All workers take the same step along the mean of their compressed gradients."""

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self._exchange = setup.exchange  # of the current step
        self._prepares = type(setup.optimizer).prepare is not Optimizer.prepare
        self._arrivals = Arrivals(setup.flat, setup.units, self._submit)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._lr = lr
        self._exchange.begin(step, epoch=epoch, lr=lr, measure=measure)

    def on_last_backward(self) -> None:
        if self._exchange.takes_early and not self.setup.clipping.needs_whole:
            self._exchange.collectives.mark_backward(True)
            self._arrivals.expect()

    def _submit(self, unit: Unit) -> None:
        if self._prepares:
            with self.setup.watch("encode"):
                self.setup.optimizer.prepare(unit)
        self._exchange.submit(unit)

    def close(self) -> None:
        self._arrivals.close()

    def finish(self) -> Traffic:
        setup = self.setup
        with setup.watch("encode"):
            setup.clipping.clip_local()
        self._exchange.collectives.mark_backward(False)
        self._arrivals.flush()
        traffic = self._exchange.finish()
        with setup.watch("update"):
            setup.clipping.clip_final()
            setup.optimizer.step(self._lr)
        return traffic
