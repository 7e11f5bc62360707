"""Compute norms with the same bits on all hosts, so that workers that decide by them decide alike."""

from __future__ import annotations

from compressors.kernels import backend, buffers
from compressors.lazy import torch


def squares(x: torch.Tensor) -> float:
    """Return the sum of the squares of `x` as float32, computed in float64 and in the order of
    `kernels.reference.sums`.

    torch's own order depends on the processor and the number of threads.
    """
    square: float = backend.load("sums", x.device).moments(buffers.as_float32(x))[2]
    return square
