"""Make tensors to test compressors with: tensors like gradients, and difficult ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compressors.lazy import torch

GRADIENT = 1e-3
"""Standard deviation of noise that stands for a gradient: methods with a fixed threshold depend on the scale."""


def gaussian(shape: Sequence[int], seed: int = 0) -> torch.Tensor:
    """Return standard normal numbers, the same in every call."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))


def heavy_tailed(shape: Sequence[int]) -> torch.Tensor:
    """Return ratios of normal numbers: a Cauchy distribution, clipped at some thousands."""
    return gaussian(shape) / gaussian(shape, 1).abs().clamp(min=1e-3)


def one_hot(shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor with a single element that is not zero."""
    x = torch.zeros(tuple(shape))
    x.view(-1)[x.numel() // 2] = -3.0
    return x


def two_sizes(shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor in which a sixth of the elements are large and the others small."""
    return torch.where(gaussian(shape, 2) > 1, 1.0, 0.01)


def decreasing(shape: Sequence[int]) -> torch.Tensor:
    """Return normal numbers whose size falls by a factor of a thousand from the first to the last."""
    return gaussian(shape, 3) * torch.logspace(0, -3, math.prod(shape)).view(tuple(shape))


SAMPLES: dict[str, Callable[[Sequence[int]], torch.Tensor]] = {
    "normal": gaussian,
    "heavy-tailed": heavy_tailed,
    "decreasing": decreasing,
    "two sizes": two_sizes,
    "all equal": lambda shape: torch.full(tuple(shape), -0.7),
    "one-hot": one_hot,
    "almost one-hot": lambda shape: one_hot(shape) + 1e-4,
}
"""Inputs for the laws, by name."""
