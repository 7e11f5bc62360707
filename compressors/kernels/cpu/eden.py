"""Quantisation after a random rotation, block by block in the first-level cache; `reference.eden` is the same in plain
torch.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from compressors.kernels.cpu.hadamard import LONGEST, compute_norm, pad, rotate, rotate_back
from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.cpu.primitives.streams import stream_bits
from compressors.kernels.cpu.scales import (
    NAN,
    bits_of,
    factor_of,
    float_of,
    is_scale,
    load,
    store,
)
from compressors.kernels.cpu.sums import GROUP, LANES, fold
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES, VALUES

_LARGEST = float(np.finfo(np.float32).max)


@helper
def _find_levels(y: Float32s, borders: Float32s, magnitudes: Float32s, levels: Float32s, ranks: Int32s) -> None:
    """Find the nearest magnitude of each element, and its rank."""
    levels[: y.size] = magnitudes[0]
    ranks[: y.size] = 0
    for place in range(borders.size):
        border = borders[place]
        level = magnitudes[place + 1]
        for index in range(y.size):
            above = abs(y[index]) > border
            levels[index] = level if above else levels[index]
            ranks[index] += np.int32(above)


@helper
def _sum_products(one: Float32s, other: Float32s, lanes: Float64s) -> float:
    """Return the sum of |one| * other over a block, in the order of `sums`."""
    lanes[:] = 0.0
    whole = one.size // GROUP * GROUP
    for first in range(0, whole, GROUP):
        some = one[first : first + GROUP]
        others = other[first : first + GROUP]
        for lane in range(LANES):
            total = lanes[lane]
            for row in range(0, GROUP, LANES):
                total += abs(np.float64(some[row + lane])) * np.float64(others[row + lane])
            lanes[lane] = total
    for index in range(whole, one.size):
        lanes[index % LANES] += abs(np.float64(one[index])) * np.float64(other[index])
    return fold(lanes)


@kernel("void(float32[::1], uint64, int64, int64, boolean, float32[::1], float32[::1], uint8[::1])")
def _encode(
    x: Float32s,
    key: np.uint64,
    bits: int,
    block: int,
    unbiased: bool,
    borders: Float32s,
    magnitudes: Float32s,
    payload: Uint8s,
) -> None:
    """Write the payload of `x` into `payload`, which has exactly the right length."""
    blocks = (x.size + block - 1) // block
    heads = payload[8 : 8 + 4 * blocks]
    for byte in range(8):
        payload[byte] = np.uint8(key >> np.uint64(8 * byte))
    position = 8 + 4 * blocks
    room, other = np.empty(LONGEST, np.float32), np.empty(LONGEST, np.float32)
    ranks, lanes, totals = np.empty(LONGEST, np.int32), np.empty(LANES), np.empty(1)
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    half = np.int32(1 << (bits - 1))
    for number in range(blocks):
        part = x[number * block : min((number + 1) * block, x.size)]
        length = pad(part.size)
        y, z = room[:length], other[:length]
        norm = compute_norm(part, totals, lanes)
        rotate(part, norm, stream_bits(key, np.uint64(number)), y, z)
        _find_levels(z, borders, magnitudes, y, ranks)
        product = _sum_products(z, y, lanes)
        if norm == NAN:
            store(heads, number, NAN)
        else:
            wide = np.float64(float_of(norm))
            if unbiased:
                scale = wide / (product if product > 0 else 1.0)
            else:
                scale = wide * product / (length * _sum_products(y, y, lanes))
            store(heads, number, bits_of(np.float32(min(scale, _LARGEST))))
        signs = z.view(np.int32)
        for first in range(0, length, BLOCK):
            count = min(BLOCK, length - first)
            for index in range(count):
                sign = np.int32(signs[first + index] >> 31)
                codes[index] = np.uint16(half + np.int32(ranks[first + index] ^ sign))
            position = pack(codes, count, bits, staged, payload, position)


@kernel("boolean(uint8[::1], int64, int64, float32[::1], float64, float32[::1])")
def _decode_add(payload: Uint8s, bits: int, block: int, values: Float32s, weight: float, out: Float32s) -> bool:
    """Add weight * Q(x), decoded from `payload` of the right length, to `out`.

    Return False if `encode` cannot have written the payload.
    """
    blocks = (out.size + block - 1) // block
    heads = payload[8 : 8 + 4 * blocks]
    key = np.uint64(0)
    for byte in range(8):
        key |= np.uint64(payload[byte]) << np.uint64(8 * byte)
    position = 8 + 4 * blocks
    room, other = np.empty(LONGEST, np.float32), np.empty(LONGEST, np.float32)
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    for number in range(blocks):
        scale = load(heads, number)
        if not is_scale(scale):
            return False
        factor = factor_of(scale, weight)
        part = out[number * block : min((number + 1) * block, out.size)]
        length = pad(part.size)
        y, z = room[:length], other[:length]
        for first in range(0, length, BLOCK):
            count = min(BLOCK, length - first)
            position = unpack(payload, position, count, bits, staged, codes)
            for index in range(count):
                z[first + index] = values[codes[index]]
        rotate_back(z, stream_bits(key, np.uint64(number)), y)
        for index in range(part.size):
            part[index] += factor * y[index]
    return True


@functools.cache
def _table(name: str, bits: int) -> Float32s:
    return np.array({"borders": BORDERS, "magnitudes": MAGNITUDES, "values": VALUES}[name][bits], np.float32)


def encode(x: torch.Tensor, key: int, bits: int, block: int, unbiased: bool, payload: torch.Tensor) -> None:
    tables = _table("borders", bits), _table("magnitudes", bits)
    _encode(x.numpy(), np.uint64(key), bits, block, unbiased, *tables, payload.numpy())


def decode_add(payload: torch.Tensor, bits: int, block: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), bits, block, _table("values", bits), weight, array(out)))
