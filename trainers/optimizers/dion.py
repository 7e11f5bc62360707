"""The steps of Dion, whose direction compressor=dion has made of the workers' momenta."""

from __future__ import annotations

import torch

from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer, find_tensors
from trainers.optimizers.muon import compute_scale
from trainers.options import optimizers as options


class Dion(Optimizer):
    """Dion: w -= lr * sqrt(rows / columns) * P Q^T + lr * weight_decay * w, where the exchanged gradient is P Q^T.

    Ahn et al., "Dion: distributed orthonormalized updates", 2025. Momentum, P and Q are those of compressor=dion and
    memory=residual, so this optimizer has no state. A tensor of more dimensions is a matrix with a row for each element
    of the first.
    """

    def __init__(self, flat: Flat, config: options.Dion) -> None:
        super().__init__(flat, config)
        self._scales = [compute_scale("spectral", len(parameter), parameter[0].numel()) for _, parameter in flat.named]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self._shrink(lr)
        for (tensor, _), scale in zip(find_tensors(self.flat), self._scales, strict=True):
            self.flat.values[tensor].add_(self.flat.gradients[tensor], alpha=-lr * scale)
