"""Muon: momentum orthogonalised by Newton-Schulz iterations."""

from __future__ import annotations

import math

import torch

from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer, find_tensors
from trainers.options import optimizers as options

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Factors of X, (X X^T) X and (X X^T)^2 X in an iteration (Jordan et al.): small singular values grow quickly, and
end near 1, not at 1."""


class Muon(Optimizer):
    """Muon: m = momentum * m + (1 - momentum) * g; w -= lr * scale * orthogonalise(u) + lr * weight_decay * w.

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, and its code: with `nesterov`
    u = momentum * m + (1 - momentum) * g, else u = m. `scale` is that of `adjust_lr` (trainers/options/optimizers.py).
    A tensor of more dimensions is a matrix with a row for each element of the first.

    Unlike the code, which computes in bfloat16, everything is float32. The products of matrices are those of the BLAS:
    workers have the same parameters to the bit if their machines have the same kind of processor.
    """

    buffers = ("momentum",)

    def __init__(self, flat: Flat, config: options.Muon) -> None:
        super().__init__(flat, config)
        self._shapes = [tuple(parameter.shape) for _, parameter in flat.named]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        gradients, momentum = self.flat.gradients, self.kept["momentum"]
        momentum.lerp_(gradients, 1 - self.momentum)
        direction = gradients.lerp_(momentum, self.momentum) if self.config.nesterov else momentum
        self._shrink(lr)
        for (tensor, _), shape in zip(find_tensors(self.flat), self._shapes, strict=True):
            matrix = direction[tensor].view(shape[0], -1)
            scale = compute_scale(self.config.adjust_lr, *matrix.shape)
            moved = orthogonalise(matrix, self.config.iterations)
            self.flat.values[tensor].view_as(matrix).add_(moved, alpha=-lr * scale)


def orthogonalise(matrix: torch.Tensor, iterations: int) -> torch.Tensor:
    """Return a matrix with about the same singular vectors, whose singular values are about 1.

    After five iterations most of them are between 0.5 and 1.5; very small ones of square matrices are smaller.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def compute_scale(rule: str, rows: int, columns: int) -> float:
    """Return the factor of the learning rate for a matrix, by a rule of `adjust_lr`."""
    if rule == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if rule == "spectral" else max(1.0, ratio))
