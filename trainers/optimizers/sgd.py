"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.sgd import sgd

from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options


class SGD(Optimizer):
    """SGD: w -= lr * d with d = g + weight_decay * w, and momentum and Nesterov as in torch.optim.SGD.

    Momentum is that of Sutskever et al., ICML 2013, in the form that applies the learning rate to the whole step.
    """

    def __init__(self, flat: Flat, config: options.SGD) -> None:
        super().__init__(flat, config)
        if config.momentum:
            self.kept["momentum"] = torch.zeros_like(flat.values)

    def adjust(self, *, momentum: float | None = None, weight_decay: float | None = None) -> None:
        super().adjust(momentum=momentum, weight_decay=weight_decay)
        if self.momentum and "momentum" not in self.kept:
            self.kept["momentum"] = torch.zeros_like(self.flat.values)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        # in one pass over memory where possible: a step mostly waits for memory
        everywhere = self._decaying == [slice(0, len(self.flat))]
        if not everywhere:
            self._decay_into(self.flat.gradients)
        sgd(
            [self.flat.values],
            [self.flat.gradients],
            [self.kept.get("momentum")],
            fused=True,
            lr=lr,
            weight_decay=self.weight_decay if everywhere else 0.0,
            momentum=self.momentum,
            nesterov=self.config.nesterov,
            dampening=0.0,
            maximize=False,
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "momentum" not in self.kept and isinstance(state, dict) and set(state) == {"momentum"}:
            self.kept["momentum"] = torch.zeros_like(self.flat.values)  # a schedule has set it meanwhile
            try:
                super().load_state_dict(state)
            except ValueError:
                del self.kept["momentum"]
                raise
        else:
            super().load_state_dict(state)
