"""`kernels.streams` in plain Python and torch."""

from __future__ import annotations

import torch

from compressors.base import splitmix64

_MASK32 = (1 << 32) - 1


def draws(key: int, number: int, count: int) -> torch.Tensor:
    """The first `count` draws of stream `number` of `key`: (count,) int64 in [0, 2^32)."""
    bits = splitmix64(key ^ splitmix64(number))
    low, high = bits & _MASK32, bits >> 32
    h = (torch.arange(count) + low) & _MASK32
    # An int64 product may overflow; its lowest 32 bits are right all the same.
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & _MASK32
    h = h ^ high
    h = ((h ^ (h >> 15)) * 0x846CA68B) & _MASK32
    return h ^ (h >> 16)
