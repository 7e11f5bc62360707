"""CHOCO-SGD: decentralised SGD with arbitrary compression."""

from __future__ import annotations

import torch

from trainers.algorithms.base import Parts
from trainers.algorithms.gossiping import Ordered
from trainers.flat import Unit


class Choco(Ordered):
    """Of worker i, all neighbours have the same estimate h_i; what is sent is q_i = Q(x_i - h_i), and h_i += q_i.

    Then x_i += gamma sum_j w_ij (h_j - h_i). A worker keeps h_i and the sum of w_ij h_j over its neighbours, however many
    these are; all begin with 0. Koloskova, Stich and Jaggi, "Decentralized stochastic optimization and gossip
    algorithms with compressed communication" (ICML 2019), algorithms 2 and 5, is order=adapt_then_combine; Koloskova,
    Lin, Stich and Jaggi, "Decentralized deep learning with arbitrary communication compression" (ICLR 2020), algorithm
    1, is order=combine_then_adapt.
    """

    def __init__(self, order: str, gamma: float, parts: Parts) -> None:
        super().__init__(order, parts)
        self.gamma = gamma
        self.estimate = self.keep("estimate", torch.zeros_like(self.values))
        self.others = self.keep("others", torch.zeros_like(self.values))

    def outgoing(self, unit: Unit) -> None:
        torch.sub(unit.values, self.estimate.of(unit), out=unit.gradient)

    @torch.no_grad()
    def mix(self) -> None:
        self.gossip.add_own(self.estimate)
        self.gossip.add_others(self.others)
        with self.parts.watch("update"):
            self.values.add_(self.others.values, alpha=self.gamma)
            self.values.add_(self.estimate.values, alpha=self.gamma * (self.gossip.own - 1.0))
