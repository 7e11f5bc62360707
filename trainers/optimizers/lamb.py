"""LAMB: Adam with a rate for every tensor."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from compressors.kernels import norms
from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer, find_tensors
from trainers.options import optimizers as options


class LAMB(Optimizer):
    """LAMB: w -= lr * c * u with u = m / (sqrt(v) + eps) + weight_decay * w and a coefficient c for every tensor.

    You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020, Algorithm 2. m and
    v are Adam's, without bias correction, in place of which a warm-up of the rate serves. c is |w| / |u|, at least
    `min_coefficient` and at most `max_coefficient`; it is 1 where w or u is 0.
    """

    buffers: ClassVar[tuple[str, ...]] = ("momentum", "variance")

    def __init__(self, flat: Flat, config: options.LAMB) -> None:
        super().__init__(flat, config)
        self._tensors = [tensor for tensor, _ in find_tensors(flat)]
        norms.squares(flat.values[:1])  # loads the kernels

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self._take_step(lr)

    def _take_step(self, lr: float) -> list[float]:
        """Take the step; return the coefficient of every tensor."""
        config, gradients = self.config, self.flat.gradients
        self.kept["momentum"].lerp_(gradients, 1 - config.beta1)
        self.kept["variance"].mul_(config.beta2).addcmul_(gradients, gradients, value=1 - config.beta2)
        update = self._compute_update()
        self._decay_into(update)
        coefficients = [self._compute_coefficient(tensor, update) for tensor in self._tensors]
        self._move(lr, update, coefficients)
        return coefficients

    def _compute_update(self) -> torch.Tensor:
        """Return m / (sqrt(v) + eps), in the buffer of the gradients."""
        deviation = torch.sqrt(self.kept["variance"], out=self.flat.gradients).add_(self.config.eps)
        return torch.div(self.kept["momentum"], deviation, out=deviation)

    def _compute_coefficient(self, tensor: slice, update: torch.Tensor) -> float:
        values, length = compute_norm(self.flat.values[tensor]), compute_norm(update[tensor])
        if not values or not length:
            return 1.0
        return clip(values / length, self.config.min_coefficient, self.config.max_coefficient)

    def _move(self, lr: float, update: torch.Tensor, coefficients: list[float]) -> None:
        for tensor, coefficient in zip(self._tensors, coefficients, strict=True):
            self.flat.values[tensor].add_(update[tensor], alpha=-lr * coefficient)


def compute_norm(x: torch.Tensor) -> float:
    """Return the l2 norm, the same on all hosts."""
    return math.sqrt(norms.squares(x))


def clip(value: float, low: float, high: float) -> float:
    """Return the nearest number between two bounds; NaN stays NaN."""
    return min(max(value, low), high)
