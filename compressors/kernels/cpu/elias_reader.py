"""Read a stream of Elias codes: gap, sign and level of each element of a bucket that is not zero.

Short symbols come from a table, several for each word; all others are decoded group by group.
"""

from __future__ import annotations

import numpy as np

from compressors.kernels import elias_omega
from compressors.kernels.cpu.elias_writer import reverse_bits
from compressors.kernels.cpu.primitives.arrays import Float32s, Uint8s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper

_PEEK = 13  # bits that are looked up at once
_PEEKED = np.uint64(2**_PEEK - 1)
_TOGETHER = 64 // _PEEK
_LONGEST_GROUP = 32
STAGE = 512
"""Words of a stream that are in the cache at once."""
GUARD = 4
"""Words behind them that a symbol may reach into: it has at most 2 (64 + _LONGEST_GROUP) + 1 bits."""
_0, _1, _63 = np.uint64(0), np.uint64(1), np.uint64(63)
_SYMBOLS = np.array(elias_omega.symbols(_PEEK), np.uint16)


@helper
def _peek(staged: Uint64s, at: int) -> np.uint64:
    """Return the 64 bits of the stream that begin with bit `at`."""
    word = at >> 6
    shift = np.uint64(at & 63)
    return (staged[word] >> shift) | ((staged[word + 1] << _1) << (_63 - shift))


@helper
def _read_omega(staged: Uint64s, at: int) -> tuple[np.int64, int]:
    """Return the number whose code begins at bit `at`, and the end of the code; 0 if there is no valid code."""
    value = np.int64(1)
    begin = at
    while at - begin < 64:
        bits = _peek(staged, at)
        if bits & _1 == _0:
            return value, at + 1
        length = value + 1
        if length > _LONGEST_GROUP:
            break
        value = np.int64(reverse_bits(bits, np.uint64(length)))
        at += length
    return np.int64(0), at


@helper
def _fill(stream: Uint8s, begin: int, staged: Uint64s) -> None:
    """Fill the buffer `staged` with the bytes of `stream` from `begin` on; behind the end of the stream, with ones."""
    read = staged.view(np.uint8)
    count = max(0, min(read.size, stream.size - begin))
    source = stream[begin : begin + count]
    for index in range(source.size):
        read[index] = source[index]
    read[count:] = 0xFF


@helper
def add_stream(stream: Uint8s, levels: int, factor: np.float32, staged: Uint64s, out: Float32s) -> bool:
    """Add the elements encoded in one bucket's stream to `out`; return False if no encoder can have written it."""
    steps = np.float32(levels)
    begin = 0  # the byte of the stream that `staged` begins with
    _fill(stream, begin, staged)
    at = 0  # in bits, from the beginning of `staged`
    target = -1
    while True:
        # While neither the end of the stream nor that of `staged` is near, and symbols are short.
        safe = min(64 * STAGE, 8 * (stream.size - begin - 8))
        symbol = 1
        while at < safe and symbol:
            bits = _peek(staged, at)
            for _ in range(_TOGETHER):
                symbol = np.int64(_SYMBOLS[np.int64(bits & _PEEKED)])
                if symbol == 0:
                    break
                length = symbol & 15
                bits >>= np.uint64(length)
                at += length
                target += (symbol >> 5) & 31
                level = symbol >> 10
                if level > levels or target >= out.size:
                    return False
                out[target] += factor * (np.float32(level - 2 * level * ((symbol >> 4) & 1)) / steps)
        if at >= 64 * STAGE:
            begin += at >> 6 << 3
            at &= 63
            _fill(stream, begin, staged)
        rest = 8 * (stream.size - begin) - at
        if rest < 8:
            padding = (_1 << np.uint64(max(0, rest))) - _1
            if rest < 0 or _peek(staged, at) & padding == padding:
                return bool(rest >= 0)
        gap, at = _read_omega(staged, at)
        negative = np.int64(_peek(staged, at) & _1)
        level, at = _read_omega(staged, at + 1)
        target += gap
        if gap == 0 or level == 0 or level > levels or target >= out.size:
            return False
        out[target] += factor * (np.float32(level - 2 * level * negative) / steps)
