"""NoLoCo: local steps, and outer steps with the parameters of a few neighbours instead of an allreduce."""

from __future__ import annotations

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Gossiping
from trainers.exchange.base import Traffic
from trainers.gradients.flat import Unit
from trainers.options import algorithms as options


class NoLoCo(Gossiping):
    """Worker i takes `steps` local steps from p_i to x_i. Then, with means over itself and its neighbours by W:

        m_i <- a m_i + b mean_j(x_j - p_j) + c (mean_j(p_j) - p_i);  p_i <- p_i + m_i;  x_i <- p_i

    with a = `outer_momentum`, b = `outer_lr` and c = `consensus`. Li et al., "NoLoCo: No-all-reduce low communication
    training method for large models", 2025, equation 2, with pairs drawn at random (topology=random_pairs). There a
    worker sends x_i - p_i and p_i. Both means are needed only in one sum, so here it sends x_i + (c / b - 1) p_i, which
    is half as long and for c = b just x_i. Messages may be compressed; their errors are not corrected.
    """

    def __init__(self, config: options.NoLoCo, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self._slow = self.keep("slow", self.values.clone())
        self._momentum = self.keep("momentum", torch.zeros_like(self.values))
        self._counts = torch.zeros(3, dtype=torch.int64)
        """Local steps since the last outer step, outer steps since the beginning, and 1 if the next is measured."""
        self.kept["counts"] = self._counts
        self._consensus = config.outer_lr if config.consensus is None else config.consensus

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._counts[2] |= measure
        super().begin(step, epoch, lr, bool(self._counts[2]))

    @torch.no_grad()
    def finish(self) -> Traffic:
        self.update()
        self._counts[0] += 1
        if self._counts[0] < self.config.steps:
            return Traffic(0.0, 0.0, None)
        self._counts[1] += 1
        self._counts[0] = self._counts[2] = 0
        self.send(int(self._counts[1]))
        self.receive()
        return self.gossip.traffic()

    def prepare_outgoing(self, unit: Unit) -> Unit:
        surplus = self._consensus / self.config.outer_lr - 1.0
        torch.add(self.mine.view(unit), self._slow.view(unit), alpha=surplus, out=unit.gradient)
        return unit

    def mix(self, unit: Unit) -> None:
        x, slow, momentum = self.mine.view(unit), self._slow.view(unit), self._momentum.view(unit)
        momentum.mul_(self.config.outer_momentum).add_(x - slow, alpha=self.config.outer_lr)
        self.add_differences(self._momentum, unit, self.config.outer_lr)
        slow.add_(momentum)
        x.copy_(slow)
