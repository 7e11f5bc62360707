"""Pack codes of a few bits each into a stream of bits: code i takes bits [i * width, (i + 1) * width), the least
significant bit first, in bytes from the lowest address on.

Eight codes of `width` bits are exactly `width` bytes. Kernels work on blocks of at most BLOCK codes
that stay in the first-level cache as 16-bit numbers, four of which are one 64-bit word.
"""

from __future__ import annotations

import numpy as np

from compressors.kernels.cpu.primitives.arrays import Array, Uint8s, Uint16s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper

BLOCK = 1024
"""Codes in one block; a multiple of eight, so that every block starts at a whole byte."""

_64, _56 = np.uint64(64), np.uint64(56)
# Times this, eight bytes of 0 or 1 put their bits, the first byte lowest, into the uppermost byte: no carry gets there.
_GATHER = np.uint64(0x0102040810204080)


@helper
def squeeze(word: np.uint64, width: np.uint64) -> np.uint64:
    """Move four codes from four 16-bit fields into the lowest 4 * width bits, and return the result."""
    field = (np.uint64(1) << width) - np.uint64(1)
    even = field | (field << np.uint64(32))
    odd = even << np.uint64(16)
    word = (word & even) | ((word & odd) >> (np.uint64(16) - width))
    low = (field << width) | field
    return (word & low) | ((word >> (np.uint64(32) - width - width)) & (low << (width + width)))


@helper
def spread(bits: np.uint64, width: np.uint64) -> np.uint64:
    """Move four codes from the lowest 4 * width bits into four 16-bit fields; higher bits are ignored."""
    field = (np.uint64(1) << width) - np.uint64(1)
    low = (field << width) | field
    word = (bits & low) | ((bits & (low << (width + width))) << (np.uint64(32) - width - width))
    even = field | (field << np.uint64(32))
    return (word & even) | ((word & (even << width)) << (np.uint64(16) - width))


@helper
def pack_bits(eights: Uint64s, payload: Uint8s) -> None:
    """Pack each group of eight bytes of 0 or 1, an element of `eights`, into a byte of `payload`."""
    for index in range(payload.size):
        payload[index] = np.uint8((eights[index] * _GATHER) >> _56)


@helper
def _squeeze_all(words: Uint64s, width: np.uint64, fields: Array) -> None:
    """Fill each element of `fields` with four codes; the compiler turns this loop into SIMD instructions."""
    for index in range(words.size):
        fields[index] = squeeze(words[index], width)


@helper
def _join(words: Uint64s, width: np.uint64, staged: Uint64s) -> None:
    """Write the groups of four codes in `words`, 4 * width bits each, to `staged` without gaps."""
    step = width << np.uint64(2)
    gathered = np.uint64(0)
    filled = np.uint64(0)
    full = 0
    for index in range(words.size):
        gathered |= words[index] << filled
        filled += step
        if filled >= _64:
            staged[full] = gathered
            full += 1
            filled -= _64
            # Two shifts: step - filled may be 64, by which a word can't be shifted.
            gathered = (words[index] >> np.uint64(1)) >> (step - filled - np.uint64(1))
    staged[full] = gathered


@helper
def pack(codes: Uint16s, count: int, width: int, staged: Uint64s, payload: Uint8s, position: int) -> int:
    """Write the first `count` of BLOCK codes to `payload`, starting at byte `position`; return the end position.

    `codes` are overwritten; `staged` is a buffer of BLOCK // 4 + 1 words.
    """
    codes[count : (count + 3) >> 2 << 2] = 0
    words = codes.view(np.uint64)[: (count + 3) >> 2]
    wide = np.uint64(width)
    if width == 2:
        _squeeze_all(words, wide, staged.view(np.uint8))
    elif width == 4:
        _squeeze_all(words, wide, staged.view(np.uint16))
    elif width == 8:
        _squeeze_all(words, wide, staged.view(np.uint32))
    elif width == 16:
        _squeeze_all(words, wide, staged)
    else:
        _squeeze_all(words, wide, words)
        _join(words, wide, staged)
    written = staged.view(np.uint8)
    target = payload[position : position + ((count * width + 7) >> 3)]
    for index in range(target.size):
        target[index] = written[index]
    return position + target.size


@helper
def _spread_all(fields: Array, width: np.uint64, words: Uint64s) -> None:
    """Split each element of `fields` into four codes: the inverse of `_squeeze_all`."""
    for index in range(words.size):
        words[index] = spread(np.uint64(fields[index]), width)


@helper
def _split(staged: Uint64s, width: np.uint64, words: Uint64s) -> None:
    """Split `staged` into groups of four codes, 4 * width bits each; higher bits of `words` are undefined."""
    step = width << np.uint64(2)
    taken = np.uint64(0)
    at = 0
    for index in range(words.size):
        bits = staged[at] >> taken
        taken += step
        if taken >= _64:
            at += 1
            taken -= _64
            bits |= (staged[at] << np.uint64(1)) << (step - taken - np.uint64(1))
        words[index] = bits


@helper
def unpack(payload: Uint8s, position: int, count: int, width: int, staged: Uint64s, codes: Uint16s) -> int:
    """Read `count` codes that `pack` has written; return the end position.

    The rest of the last word of `codes` is undefined.
    """
    read = staged.view(np.uint8)
    source = payload[position : position + ((count * width + 7) >> 3)]
    for index in range(source.size):
        read[index] = source[index]
    words = codes.view(np.uint64)[: (count + 3) >> 2]
    wide = np.uint64(width)
    if width == 2:
        _spread_all(staged.view(np.uint8), wide, words)
    elif width == 4:
        _spread_all(staged.view(np.uint16), wide, words)
    elif width == 8:
        _spread_all(staged.view(np.uint32), wide, words)
    elif width == 16:
        _spread_all(staged, wide, words)
    else:
        _split(staged, wide, words)
        _spread_all(words, wide, words)
    return position + source.size
