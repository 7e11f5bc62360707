"""Quantile buckets in two passes: a histogram of cells, then the bucket of every element from a table of the cells.

`reference.sketch` is the same in plain torch; `kernels.quantiles` is the common part of both.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.buffers import write_floats
from compressors.kernels.cpu.primitives.arrays import Float32s, Int64s, Uint8s, Uint16s, Uint32s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.quantiles import CELLS, Cut, buckets

_LOW = np.uint32(0xFFFF)
_HIGH = np.uint32(16)
_INFINITY = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_NAN = np.uint32(0x7FC00000)
# A count and a sum of 16-bit numbers share 64 bits as long as no more than 2^23 elements are counted.
_RUN = 1 << 23
_COUNT = np.uint64(40)
_ONE = np.uint64(1 << 40)
_SUM = np.uint64((1 << 40) - 1)


@kernel("void(uint32[::1], uint64[::1], int64[::1], int64[::1])")
def _histogram(bits: Uint32s, both: Uint64s, counts: Int64s, lows: Int64s) -> None:
    """Add the count of elements of every cell to `counts`, and the sum of their lower 16 bits to `lows`.

    `both` is a buffer of zeros with an element for each cell.
    """
    for first in range(0, bits.size, _RUN):
        part = bits[first : first + _RUN]
        for index in range(part.size):
            both[part[index] >> _HIGH] += _ONE | np.uint64(part[index] & _LOW)
        for cell in range(both.size):
            if both[cell] != 0:
                counts[cell] += np.int64(both[cell] >> _COUNT)
                lows[cell] += np.int64(both[cell] & _SUM)
                both[cell] = 0


@kernel("void(uint32[::1], uint8[::1], int64, uint8[::1])")
def _write_codes(bits: Uint32s, table: Uint8s, width: int, payload: Uint8s) -> None:
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK // 4 + 1, np.uint64)
    position = 0
    for first in range(0, bits.size, BLOCK):
        part = bits[first : first + BLOCK]
        for index in range(part.size):
            codes[index] = table[part[index] >> _HIGH]
        position = pack(codes, part.size, width, staged, payload, position)


@helper
def _add_block(codes: Uint16s, values: Float32s, out: Float32s) -> None:
    for index in range(out.size):
        out[index] += values[codes[index]]


@helper
def _largest(codes: Uint16s) -> int:
    largest = np.uint16(0)
    for index in range(codes.size):
        largest = max(largest, codes[index])
    return int(largest)


@kernel("boolean(uint8[::1], int64, int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, number: int, width: int, weight: float, out: Float32s) -> bool:
    """Add weight * Q(x), decoded from `payload` of the right length, to `out`.

    Return False if `encode` cannot have written the payload.
    """
    bits = np.zeros(number, np.uint32)
    means = bits.view(np.float32)
    for index in range(number):
        for byte in range(4):
            bits[index] |= np.uint32(payload[4 * index + byte]) << np.uint32(8 * byte)
        if (bits[index] & _MAGNITUDE) >= _INFINITY and bits[index] != _NAN:
            return False
    values = np.empty(number, np.float32)
    for index in range(number):
        values[index] = np.float32(weight * np.float64(means[index]))
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.zeros(BLOCK // 4 + 1, np.uint64)
    position = 4 * number
    for first in range(0, out.size, BLOCK):
        part = out[first : first + BLOCK]
        position = unpack(payload, position, part.size, width, staged, codes)
        if _largest(codes[: part.size]) >= number:
            return False
        _add_block(codes, values, part)
    return True


def encode(x: torch.Tensor, number: int, payload: torch.Tensor, cut: Cut = buckets) -> None:
    if not number:
        return
    bits = x.numpy().view(np.uint32)
    both, counts, lows = np.zeros(CELLS, np.uint64), np.zeros(CELLS, np.int64), np.zeros(CELLS, np.int64)
    _histogram(bits, both, counts, lows)
    table, means = cut(counts, lows, number)
    write_floats(torch.from_numpy(means), payload[: 4 * number])
    _write_codes(bits, table, (number - 1).bit_length(), payload[4 * number :].numpy())


def decode_add(payload: torch.Tensor, number: int, weight: float, out: torch.Tensor) -> bool:
    if not number:
        return True
    return bool(_decode_add(payload.numpy(), number, (number - 1).bit_length(), weight, out.numpy()))
