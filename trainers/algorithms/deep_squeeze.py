"""DeepSqueeze: decentralised SGD with error feedback."""

from __future__ import annotations

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Ordered
from trainers.gradients.flat import Unit
from trainers.options import algorithms as options


class DeepSqueeze(Ordered):
    """DeepSqueeze: worker i sends c_i = Q(x_i + e_i) with its compression error e_i, which is 0 at first.

    Then e_i becomes x_i + e_i - c_i, and x_i += gamma sum_j w_ij (c_j - c_i).

    Tang, Lian, Qiu, Yuan, Zhang, Zhang and Liu, "DeepSqueeze: decentralization meets error-compensated compression"
    (2019), algorithm 1.
    """

    def __init__(self, config: options.DeepSqueeze, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup, scheme="deep_squeeze")
        self.error = self.keep("error", torch.zeros_like(self.values))

    def prepare_outgoing(self, unit: Unit) -> Unit:
        self.error.view(unit).add_(unit.values)
        return self.error.units[unit.index]

    def on_encoded(self, unit: Unit) -> None:
        self.gossip.add_own(self.error, unit, -1.0)

    def mix(self, unit: Unit) -> None:
        self.add_differences(self.mine, unit, self.gamma)

    def measure_withheld(self) -> float:
        return float(torch.linalg.vector_norm(self.error.values))
