"""Draw elements of a tensor at random; `kernels.reference.sampling` says which."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s
from compressors.kernels.cpu.primitives.jit import kernel
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits

_31 = np.uint64(31)


@kernel("void(float32[::1], uint64, float32[::1])")
def _sample(x: Float32s, key: np.uint64, taken: Float32s) -> None:
    low, high = halves(stream_bits(key, np.uint64(0)))
    size = np.uint64(x.size)
    for index in range(taken.size):
        first = np.uint64(draw(low, high, np.uint32(2 * index)))
        second = np.uint64(draw(low, high, np.uint32(2 * index + 1)) >> np.uint32(1))
        taken[index] = x[np.int64(((first << _31) | second) % size)]


def sample(x: torch.Tensor, key: int, count: int) -> torch.Tensor:
    taken = torch.empty(count)
    _sample(x.numpy(), np.uint64(key), taken.numpy())
    return taken
