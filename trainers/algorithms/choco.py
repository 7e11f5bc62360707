"""CHOCO-SGD: decentralised SGD with arbitrary compression."""

from __future__ import annotations

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Ordered
from trainers.gradients.flat import Unit
from trainers.options import algorithms as options


class Choco(Ordered):
    """CHOCO-SGD: all neighbours of worker i keep the same estimate h_i of x_i. Worker i sends q_i = Q(x_i - h_i), and
    h_i += q_i.

    Then x_i += gamma sum_j w_ij (h_j - h_i). However many neighbours it has, a worker keeps only h_i and this sum, its
    pull; both are 0 at first.

    Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication" (ICML 2019), algorithms 2 and 5, is order=adapt_then_combine. Koloskova, Lin, Stich and Jaggi,
    "Decentralized deep learning with arbitrary communication compression" (ICLR 2020), algorithm 1, is
    order=combine_then_adapt.
    """

    def __init__(self, config: options.Choco, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup, scheme="choco")
        self.estimate = self.keep("estimate", torch.zeros_like(self.values))
        self.pull = self.keep("pull", torch.zeros_like(self.values))

    def prepare_outgoing(self, unit: Unit) -> Unit:
        torch.sub(unit.values, self.estimate.view(unit), out=unit.gradient)
        return unit

    def on_encoded(self, unit: Unit) -> None:
        self.gossip.add_own(self.estimate, unit)

    def mix(self, unit: Unit) -> None:
        unit.values.add_(self.add_differences(self.pull, unit), alpha=self.gamma)

    @torch.no_grad()
    def measure_withheld(self) -> float:
        return float(torch.linalg.vector_norm(self.values - self.estimate.values))
