"""DeepSqueeze: decentralised SGD with error feedback."""

from __future__ import annotations

import torch

from trainers.algorithms.base import Parts
from trainers.algorithms.gossiping import Ordered
from trainers.flat import Unit


class DeepSqueeze(Ordered):
    """c_i = Q(x_i + e_i) is sent, e_i becomes x_i + e_i - c_i, and x_i += gamma sum_j w_ij (c_j - c_i); e_i begins with 0.

    Tang, Lian, Qiu, Yuan, Zhang, Zhang and Liu, "DeepSqueeze: decentralization meets error-compensated compression"
    (2019), algorithm 1.
    """

    def __init__(self, order: str, gamma: float, parts: Parts) -> None:
        super().__init__(order, parts)
        self.gamma = gamma
        self.error = self.keep("error", torch.zeros_like(self.values))

    def outgoing(self, unit: Unit) -> None:
        error = self.error.of(unit)
        error.add_(unit.values)
        unit.gradient.copy_(error)

    @torch.no_grad()
    def mix(self) -> None:
        self.gossip.add_own(self.error, -1.0)
        self.towards(self.gamma)
