"""Stochastic gradient push: SGD with push-sum, also on directed graphs."""

from __future__ import annotations

from typing import Any

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Gossiping
from trainers.exchange.base import Traffic
from trainers.gradients.flat import Unit


class SGP(Gossiping):
    """SGP: mixes x_i and a weight v_i, at first 1, in the same way: to sum_j w_ij x_j and sum_j w_ij v_j.

    The model's parameters are z_i = x_i / v_i: gradients are computed at z_i, and the optimizer's steps start from x_i.

    Only the columns of W have to sum to 1: z_i still converges to the mean. Assran, Loizou, Ballas and Rabbat,
    "Stochastic gradient push for distributed deep learning" (ICML 2019), algorithm 1.
    """

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self.pushed = self.keep("pushed", self.values.clone())
        self.weight = self.kept["weight"] = torch.ones(1, dtype=torch.float64)
        self.gossip.lane.carry(self.weight)

    def prepare_outgoing(self, unit: Unit) -> Unit:
        return self.mine.units[unit.index]

    @torch.no_grad()
    def finish(self) -> Traffic:
        self.values.copy_(self.pushed.values)
        self.update()
        self.send()
        self.gossip.receive()
        weights = [weight * float(of_other) for weight, of_other in self.gossip.lane.read_remarks()]
        self.weight.mul_(self.gossip.own).add_(sum(weights))
        self.receive()
        return self.gossip.traffic()

    def mix(self, unit: Unit) -> None:
        pushed = self.pushed.view(unit)
        torch.mul(unit.values, self.gossip.own, out=pushed)
        self.gossip.add_others(self.pushed, unit)
        torch.div(pushed, float(self.weight), out=unit.values)
