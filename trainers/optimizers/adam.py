"""Adam and AdamW."""

from __future__ import annotations

import math

import torch

from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options


class Adam(Optimizer):
    """Adam with bias correction (Kingma and Ba, ICLR 2015); with `decoupled`, AdamW (Loshchilov and Hutter, ICLR 2019).

    Computes the same as torch.optim.Adam and AdamW.
    """

    buffers = ("momentum", "variance")

    def __init__(self, flat: Flat, config: options.Adam | options.OneBitAdam) -> None:
        super().__init__(flat, config)
        self.kept["steps"] = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        config, gradients = self.config, self.flat.gradients
        if config.decoupled:
            self._shrink(lr)
        else:
            self._decay_into(gradients)
        done = int(self.kept["steps"].add_(1))
        momentum = self.kept["momentum"].lerp_(gradients, 1 - config.beta1)
        variance = self.kept["variance"].mul_(config.beta2).addcmul_(gradients, gradients, value=1 - config.beta2)
        deviation = torch.sqrt(variance, out=gradients)
        deviation.div_(math.sqrt(1 - config.beta2**done)).add_(config.eps)
        self.flat.values.addcdiv_(momentum, deviation, value=-lr / (1 - config.beta1**done))
