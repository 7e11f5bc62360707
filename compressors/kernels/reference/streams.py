"""`kernels.streams` in plain Python and torch."""

from __future__ import annotations

import torch

_MASK64 = (1 << 64) - 1
_MASK32 = (1 << 32) - 1


def splitmix64(state: int) -> int:
    """One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
    return state ^ (state >> 31)


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
