"""Write a stream of Elias codes in 64-bit words; the first bit of a code is the least significant one.

Codes of small numbers come from a table; all others are composed group by group.
"""

from __future__ import annotations

import numpy as np

from compressors.kernels import elias_omega
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s, Uint16s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper
from compressors.kernels.cpu.primitives.packing import BLOCK
from compressors.kernels.cpu.qsgd import round_block

_TABLE = 256  # numbers whose codes are looked up
_SHORT = np.array(
    [int(elias_omega.code(max(1, n))[::-1], 2) << 8 | elias_omega.length(max(1, n)) for n in range(_TABLE)], np.uint64
)
"""code << 8 | length"""
_LIMIT, _BYTE = np.uint64(_TABLE), np.uint64(0xFF)
_0, _1, _8, _64 = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(64)


@helper
def _bit_length(value: np.uint64) -> np.uint64:
    length = _0
    while value:
        value >>= _1
        length += _1
    return length


@helper
def reverse_bits(value: np.uint64, length: np.uint64) -> np.uint64:
    """Return the lowest `length` bits of `value` in reverse order."""
    result = _0
    for _ in range(length):
        result = (result << _1) | (value & _1)
        value >>= _1
    return result


@helper
def _omega(value: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the Elias omega code of a number, its first bit lowest, and its length."""
    code = _0
    length = _1
    while value > _1:
        bits = _bit_length(value)
        code = (code << bits) | reverse_bits(value, bits)
        length += bits
        value = bits - _1
    return code, length


@helper
def _append(
    code: np.uint64, length: np.uint64, gathered: np.uint64, filled: np.uint64, full: int, staged: Uint64s
) -> tuple[np.uint64, np.uint64, int]:
    """Append a code of 1 to 64 bits to `gathered`, whose lowest `filled` bits are used; store a full word in
    `staged[full]`.
    """
    gathered |= code << filled
    filled += length
    if filled >= _64:
        staged[full] = gathered
        full += 1
        filled -= _64
        # Two shifts: length - filled may be 64, by which a word can't be shifted.
        gathered = (code >> _1) >> (length - filled - _1)
    return gathered, filled, full


@helper
def _write(staged: Uint64s, count: int, payload: Uint8s, position: int) -> int:
    """Copy `count` bytes of `staged` to `payload` from `position` on; return the end position."""
    source = staged.view(np.uint8)[:count]
    target = payload[position : position + count]
    for index in range(target.size):
        target[index] = source[index]
    return position + count


@helper
def write_stream(
    x: Float32s,
    bits: Int32s,
    stream: np.uint64,
    scale: np.float32,
    levels: int,
    codes: Uint16s,
    staged: Uint64s,
    payload: Uint8s,
    position: int,
) -> int:
    """Write the stream of one bucket from `position` on, padded with ones to a whole byte; return its end."""
    words = codes.view(np.uint64)
    nothing = np.uint64(levels) * np.uint64(0x0001000100010001)
    gathered, filled = _0, _0
    previous = -1
    for first in range(0, x.size, BLOCK):
        last = min(first + BLOCK, x.size)
        count = last - first
        round_block(x[first:last], bits[first:last], scale, np.float32(levels), stream, np.uint32(first), codes)
        codes[count : (count + 3) >> 2 << 2] = levels
        full = 0
        for word in range((count + 3) >> 2):
            if words[word] == nothing:
                continue
            for index in range(4 * word, 4 * word + 4):
                level = np.int64(codes[index]) - levels
                if level == 0:
                    continue
                gap = np.uint64(first + index - previous)
                previous = first + index
                height = np.uint64(abs(level))
                negative = np.uint64(level < 0)
                if gap < _LIMIT and height < _LIMIT:
                    one, two = _SHORT[gap], _SHORT[height]
                    length = one & _BYTE
                    code = (one >> _8) | ((((two >> _8) << _1) | negative) << length)
                    length += (two & _BYTE) + _1
                    gathered |= code << filled
                    filled += length
                    if filled >= _64:
                        staged[full] = gathered
                        full += 1
                        filled -= _64
                        gathered = (code >> _1) >> (length - filled - _1)
                else:
                    code, length = _omega(gap)
                    gathered, filled, full = _append(code, length, gathered, filled, full, staged)
                    code, length = _omega(height)
                    code = (code << _1) | negative
                    gathered, filled, full = _append(code, length + _1, gathered, filled, full, staged)
        position = _write(staged, 8 * full, payload, position)
    if filled:
        staged[0] = gathered | (~_0 << filled)
        position = _write(staged, (np.int64(filled) + 7) >> 3, payload, position)
    return position
