"""`kernels.cpu.primitives.streams` in Triton: random numbers as a function of a key and a counter."""

from __future__ import annotations

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX2 = tl.constexpr(0x94D049BB133111EB)
_ROUND1 = tl.constexpr(0x7FEB352D)
_ROUND2 = tl.constexpr(0x846CA68B)


@triton.jit
def splitmix64(state) -> tl.tensor:
    """Return one step of SplitMix64 on uint64."""
    state = state + _GOLDEN
    state = (state ^ (state >> 30)) * _MIX1
    state = (state ^ (state >> 27)) * _MIX2
    return state ^ (state >> 31)


@triton.jit
def stream_bits(key, number) -> tl.tensor:
    """Return the uint64 from which stream `number` (uint64) of a key starts; `key` is an integer kernel argument."""
    return splitmix64(key.to(tl.int64).to(tl.uint64) ^ splitmix64(number))


@triton.jit
def draw(bits, counter) -> tl.tensor:
    """Return element `counter` (uint32) of the streams that start from `bits` (uint64): uniform uint32."""
    h = counter + bits.to(tl.uint32)
    h = (h ^ (h >> 16)) * _ROUND1
    h = h ^ (bits >> 32).to(tl.uint32)
    h = (h ^ (h >> 15)) * _ROUND2
    return h ^ (h >> 16)
