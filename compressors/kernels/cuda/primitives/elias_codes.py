"""Elias' omega code of numbers from 1 to 2^32 - 1 in Triton (`kernels.elias_omega`), as bits in 32-bit words.

Bit i of a stream is bit i % 32 of word i // 32. The first bit of a code comes first.
"""

from __future__ import annotations

import triton
import triton.language as tl

GUARD = 8
"""Words behind a stream that reading a symbol may look at: it has at most 2 * 43 + 1 bits, of 64 seen at a time."""
_GROUPS = tl.constexpr(4)  # of the code of a number below 2^32
_LONGEST_GROUP = tl.constexpr(32)


@triton.jit
def _bit_length(value) -> tl.tensor:
    """Return the bit lengths of int64 from 1 to 2^32 - 1."""
    length = tl.full(value.shape, 1, tl.int64)
    for step in tl.static_range(5):
        large = (value >> (16 >> step)) > 0
        length += tl.where(large, 16 >> step, 0)
        value = tl.where(large, value >> (16 >> step), value)
    return length


@triton.jit
def _reverse_bits(value, length) -> tl.tensor:
    """Return the lowest `length` bits, 1 to 32, of int64 in reverse order."""
    value = ((value >> 1) & 0x55555555) | ((value & 0x55555555) << 1)
    value = ((value >> 2) & 0x33333333) | ((value & 0x33333333) << 2)
    value = ((value >> 4) & 0x0F0F0F0F) | ((value & 0x0F0F0F0F) << 4)
    value = ((value >> 8) & 0x00FF00FF) | ((value & 0x00FF00FF) << 8)
    value = ((value >> 16) & 0x0000FFFF) | ((value & 0x0000FFFF) << 16)
    return value >> (32 - length)


@triton.jit
def omega(value) -> tl.tensor:
    """Return the Elias omega codes of int64, their first bits lowest, and their lengths, at most 43: both int64."""
    code = tl.zeros(value.shape, tl.int64)
    length = tl.full(value.shape, 1, tl.int64)
    for _ in tl.static_range(_GROUPS):
        bits = _bit_length(value)
        code = tl.where(value > 1, (code << bits) | _reverse_bits(value, bits), code)
        length = tl.where(value > 1, length + bits, length)
        value = tl.where(value > 1, bits - 1, value)
    return code, length


@triton.jit
def or_bits(words, begin, code, mask) -> None:
    """Set the bits of codes, at most 63 bits each (int64), from bit `begin` on; atomically, as programs share words."""
    word = words + (begin >> 5)
    shift = begin & 31
    low = code << shift
    middle = (low >> 32).to(tl.int32)
    high = ((code >> 1) >> (63 - shift)).to(tl.int32)
    tl.atomic_or(word, low.to(tl.int32), mask=mask, sem="relaxed")
    tl.atomic_or(word + 1, middle, mask=mask & (middle != 0), sem="relaxed")
    tl.atomic_or(word + 2, high, mask=mask & (high != 0), sem="relaxed")


@triton.jit
def peek(words, at) -> tl.tensor:
    """Return 32 bits of the stream from bit `at` on, in the low half of an int64; the high half is undefined."""
    low = tl.load(words + (at >> 5)).to(tl.int64) & 0xFFFFFFFF
    high = tl.load(words + (at >> 5) + 1).to(tl.int64)
    return ((high << 32) | low) >> (at & 31)


@triton.jit
def read_omega(words, at) -> tl.tensor:
    """Return the numbers whose codes begin at bit `at`, and the ends of these codes; 0 for an invalid code."""
    value = tl.full(at.shape, 1, tl.int64)
    done = tl.zeros(at.shape, tl.int32)
    bad = tl.zeros(at.shape, tl.int32)
    for _ in tl.static_range(_GROUPS + 1):
        bits = peek(words, at)
        done = tl.where((bits & 1) == 0, 1 - bad, done)
        bad = tl.where((done == 0) & (value >= _LONGEST_GROUP), 1, bad)
        more = (done + bad) == 0
        length = tl.minimum(value + 1, 32)
        value = tl.where(more, _reverse_bits(bits & 0xFFFFFFFF, length), value)
        at = tl.where(more, at + length, at)
    return tl.where(done > 0, value, 0), at + 1
