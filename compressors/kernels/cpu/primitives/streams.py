"""Draw random numbers that are a function of a key and a counter, and of nothing else.

Two stages, both without state, so that any element can be drawn in any order and by SIMD:

1. A stream (say, one bucket of one payload) gets 64 bits: `splitmix64(key ^ splitmix64(number))`,
   where `key` is Key.mix(), a hash of (seed, worker, step, unit). splitmix64 is the generator of
   Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
2. Element i of a stream is a keyed 32-bit hash of i, cheap enough to be drawn eight at a time: two
   multiply-xorshift rounds (the constants of "lowbias32", Wellons' hash-prospector) that start from
   i plus the low half of the stream's bits; the high half is mixed in between the rounds, so that
   streams which happen to start near each other don't repeat each other.

Within one stream the 32-bit draws are a permutation: no value comes twice in 2^32 elements.
The generator is not cryptographic. `kernels.uniform` is for the few draws of a method without a kernel.
"""

from __future__ import annotations

import numpy as np

from compressors.kernels.cpu.primitives.jit import helper

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)

ROUND1 = np.uint32(0x7FEB352D)
ROUND2 = np.uint32(0x846CA68B)
_15, _16 = np.uint32(15), np.uint32(16)


@helper
def splitmix64(state: np.uint64) -> np.uint64:
    """Return one step of SplitMix64: a bijection of 64 bits."""
    state = state + _GOLDEN
    state = (state ^ (state >> _30)) * _MIX1
    state = (state ^ (state >> _27)) * _MIX2
    return state ^ (state >> _31)


@helper
def stream_bits(key: np.uint64, number: np.uint64) -> np.uint64:
    """Return the 64 bits from which stream `number` of a key starts."""
    return splitmix64(key ^ splitmix64(number))


@helper
def halves(bits: np.uint64) -> tuple[np.uint32, np.uint32]:
    """Return the low and the high half of a stream's bits, as `draw` takes them."""
    return np.uint32(bits), np.uint32(bits >> np.uint64(32))


@helper
def draw(low: np.uint32, high: np.uint32, counter: np.uint32) -> np.uint32:
    """Return element `counter` of a stream as 32 uniform bits; `low` and `high` are the halves of the stream's bits."""
    h = np.uint32(counter + low)
    h = np.uint32((h ^ (h >> _16)) * ROUND1)
    h = np.uint32(h ^ high)
    h = np.uint32((h ^ (h >> _15)) * ROUND2)
    return np.uint32(h ^ (h >> _16))
