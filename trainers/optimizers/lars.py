"""Layer-wise adaptive rate scaling."""

from __future__ import annotations

import math

import torch

from compressors.kernels import norms
from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer, find_tensors
from trainers.options import optimizers as options


class LARS(Optimizer):
    """LARS: v = momentum * v + lr * rate * (g + weight_decay * w); w -= v, with a `rate` for every tensor.

    You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017, Algorithm 1: the rate is
    trust * |w| / (|g| + weight_decay * |w|). It is 1 for 1-D tensors, and where w or g is 0.
    """

    buffers = ("momentum",)

    def __init__(self, flat: Flat, config: options.LARS) -> None:
        super().__init__(flat, config)
        self._tensors = find_tensors(flat)
        norms.squares(flat.values[:1])  # loads the kernels

    @torch.no_grad()
    def step(self, lr: float) -> None:
        gradients, momentum = self.flat.gradients, self.kept["momentum"]
        rates = [self._compute_rate(tensor) if dimensions > 1 else 1.0 for tensor, dimensions in self._tensors]
        self._decay_into(gradients)
        momentum.mul_(self.momentum)
        for (tensor, _), rate in zip(self._tensors, rates, strict=True):
            momentum[tensor].add_(gradients[tensor], alpha=lr * rate)
        self.flat.values.sub_(momentum)

    def _compute_rate(self, tensor: slice) -> float:
        """Return the rate of a tensor; our own kernels compute its norms, so that these are the same on all hosts."""
        values = math.sqrt(norms.squares(self.flat.values[tensor]))
        gradient = math.sqrt(norms.squares(self.flat.gradients[tensor]))
        if not values or not gradient:
            return 1.0
        return float(self.config.trust * values / (gradient + self.weight_decay * values))
