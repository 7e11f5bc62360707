"""Stochastic gradient descent with momentum."""

from __future__ import annotations

import torch

from trainers.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options


class SGD(Optimizer):
    """w -= lr * d with d = g + weight_decay * w, momentum and Nesterov as in torch.optim.SGD.

    (Sutskever et al., ICML 2013, in the form that applies the learning rate to the whole step.)
    """

    name = "sgd"

    def __init__(self, flat: Flat, config: options.SGD) -> None:
        super().__init__(flat)
        self.config = config
        if config.momentum:
            self.kept["momentum"] = torch.zeros_like(flat.values)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        direction = self.flat.gradients
        if self.config.weight_decay:
            direction.add_(self.flat.values, alpha=self.config.weight_decay)
        if "momentum" in self.kept:
            momentum = self.kept["momentum"].mul_(self.config.momentum).add_(direction)
            direction = direction.add_(momentum, alpha=self.config.momentum) if self.config.nesterov else momentum
        self.flat.values.add_(direction, alpha=-lr)
