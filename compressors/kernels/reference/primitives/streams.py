"""`kernels.cpu.primitives.streams` in plain torch: all streams of a tensor at once.

torch has no unsigned 64-bit arithmetic; int64 wraps around to the same bits, and a logical shift is an
arithmetic one with the upper bits masked off.
"""

from __future__ import annotations

import torch

_MASK32 = (1 << 32) - 1


def _wrap_to_int64(value: int) -> int:
    """Return the int64 with the same 64 bits."""
    return (value & (2**64 - 1)) - (2**64 if value >> 63 & 1 else 0)


_GOLDEN, _MIX1, _MIX2 = (_wrap_to_int64(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shift_right(state: torch.Tensor, bits: int) -> torch.Tensor:
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix64(state: torch.Tensor) -> torch.Tensor:
    state = state + _GOLDEN
    state = (state ^ _shift_right(state, 30)) * _MIX1
    state = (state ^ _shift_right(state, 27)) * _MIX2
    return state ^ _shift_right(state, 31)


def draws(key: int, numbers: torch.Tensor, count: int) -> torch.Tensor:
    """Return the first `count` draws of each of the streams `numbers` (s,) int64 of `key`: (s, count) int64 in [0,
    2^32)."""
    bits = _splitmix64(_splitmix64(numbers) ^ _wrap_to_int64(key))
    low, high = bits[:, None] & _MASK32, _shift_right(bits, 32)[:, None]
    h = (torch.arange(count, device=numbers.device) + low) & _MASK32
    # An int64 product may overflow; its lowest 32 bits are right all the same.
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & _MASK32
    h = h ^ high
    h = ((h ^ (h >> 15)) * 0x846CA68B) & _MASK32
    return h ^ (h >> 16)
