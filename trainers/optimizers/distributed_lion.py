"""Distributed Lion."""

from __future__ import annotations

import torch

from trainers.gradients.flat import Unit
from trainers.optimizers.base import Optimizer


class DistributedLion(Optimizer):
    """Distributed Lion: workers with momenta m_i of their own exchange the signs of Lion's directions, one bit each.

    Liu et al., "Communication efficient distributed training with Distributed Lion", NeurIPS 2024, Algorithm 1. Worker
    i sends sign(beta1 * m_i + (1 - beta1) * g_i), then m_i = beta2 * m_i + (1 - beta2) * g_i. All workers take
    w -= lr * (s + weight_decay * w), where s is the vote or the mean of the signs (`compressor.aggregate`). With one
    worker this is Lion.

    compressor=sign takes the signs, so an element that is exactly 0 votes with a fair coin: one bit has no zero. Lion
    itself would not move it. The vote is 0 if the votes are equal; a mean that is compressed again
    (exchange.second=same) has a coin of the unit's owner there.
    """

    buffers = ("momentum",)

    @torch.no_grad()
    def prepare(self, unit: Unit) -> None:
        config, momentum = self.config, self._get_part("momentum", unit)
        direction = torch.lerp(momentum, unit.gradient, 1 - config.beta1)
        momentum.lerp_(unit.gradient, 1 - config.beta2)
        unit.gradient.copy_(direction)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self._shrink(lr)
        self.flat.values.add_(self.flat.gradients, alpha=-lr)
