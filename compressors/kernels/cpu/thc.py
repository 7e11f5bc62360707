"""THC, block by block in the first-level cache; `reference.thc` is the same in plain torch."""

from __future__ import annotations

import functools

import numpy as np
import torch

from compressors.kernels.cpu.hadamard import LONGEST, pad, rotate, rotate_back
from compressors.kernels.cpu.hadamard import compute_norms as compute_norms
from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Int32s, Uint8s, Uint16s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.scales import bits_of, canonical
from compressors.kernels.thc_tables import Coding

_RESOLUTION = np.float32(2.0**30)


@helper
def _round_block(
    z: Float32s,
    stream: np.uint64,
    counter: int,
    scale: np.float32,
    middle: np.float32,
    levels: Float32s,
    symbols: Int32s,
    codes: Uint16s,
) -> None:
    """Round elements to the levels of the table; `levels` and `symbols` have two rows of a number for each level."""
    low, high = halves(stream)
    top = middle + middle
    for index in range(z.size):
        exact = z[index] * scale + middle
        exact = exact if exact > 0 else np.float32(0.0)  # NaN is not above 0
        exact = exact if exact < top else top
        below = np.int32(exact)
        threshold = np.int32((exact - levels[0, below]) * levels[1, below] * _RESOLUTION)
        random = draw(low, high, np.uint32(counter + index))
        up = np.int32(np.int32(random >> np.uint32(2)) < threshold)
        codes[index] = np.uint16(symbols[up, below])


@kernel(
    "void(float32[::1], float32[::1], uint64, uint64, int64, int64, float32, float32, float32[:, ::1], int32[:, ::1],"
    " int64, uint8[::1])"
)
def _encode(
    x: Float32s,
    norms: Float32s,
    key: np.uint64,
    rotation: np.uint64,
    block: int,
    width: int,
    scale: np.float32,
    middle: np.float32,
    levels: Float32s,
    symbols: Int32s,
    position: int,
    payload: Uint8s,
) -> None:
    """Write the codes of `x` into `payload`, from byte `position` on."""
    room, other = np.empty(LONGEST, np.float32), np.empty(LONGEST, np.float32)
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    for number in range(norms.size):
        part = x[number * block : min((number + 1) * block, x.size)]
        length = pad(part.size)
        y, z = room[:length], other[:length]
        rotate(part, canonical(bits_of(norms[number])), stream_bits(rotation, np.uint64(number)), y, z)
        stream = stream_bits(key, np.uint64(number))
        for first in range(0, length, BLOCK):
            count = min(BLOCK, length - first)
            _round_block(z[first : first + count], stream, first, scale, middle, levels, symbols, codes)
            position = pack(codes, count, width, staged, payload, position)


@kernel("void(uint8[::1], float32[::1], uint64, int64, int64, float32[::1], float64, int64, float32[::1])")
def _decode_add(
    payload: Uint8s,
    norms: Float32s,
    rotation: np.uint64,
    block: int,
    width: int,
    values: Float32s,
    weight: float,
    position: int,
    out: Float32s,
) -> None:
    """Add weight / P * Q(x), decoded from the codes from byte `position` on, to `out`, for blocks of P elements."""
    room, other = np.empty(LONGEST, np.float32), np.empty(LONGEST, np.float32)
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    for number in range(norms.size):
        part = out[number * block : min((number + 1) * block, out.size)]
        length = pad(part.size)
        y, z = room[:length], other[:length]
        for first in range(0, length, BLOCK):
            count = min(BLOCK, length - first)
            position = unpack(payload, position, count, width, staged, codes)
            for index in range(count):
                z[first + index] = values[codes[index]]
        rotate_back(z, stream_bits(rotation, np.uint64(number)), y)
        factor = np.float32(np.float64(norms[number]) * (weight / length))
        for index in range(part.size):
            part[index] += factor * y[index]


@functools.cache
def _tables(coding: Coding) -> tuple[Array, Array, Array]:
    """Return levels and slopes, lower and upper codes, and values by code."""
    levels, symbols = (coding.lows, coding.slopes), (coding.lower, coding.upper)
    return np.array(levels, np.float32), np.array(symbols, np.int32), np.array(coding.values, np.float32)


def encode(
    x: torch.Tensor, norms: torch.Tensor, key: int, rotation: int, block: int, coding: Coding, payload: torch.Tensor
) -> None:
    levels, symbols, _ = _tables(coding)
    keys, numbers = (np.uint64(key), np.uint64(rotation)), (np.float32(coding.scale), np.float32(coding.middle))
    begin = 4 * len(norms) if coding.head else 0
    _encode(x.numpy(), norms.numpy(), *keys, block, coding.width, *numbers, levels, symbols, begin, payload.numpy())


def decode_add(
    payload: torch.Tensor,
    norms: torch.Tensor,
    rotation: int,
    block: int,
    coding: Coding,
    weight: float,
    out: torch.Tensor,
) -> None:
    values, begin = _tables(coding)[2], 4 * len(norms) if coding.head else 0
    numbers = np.uint64(rotation), block, coding.width, values, weight * coding.step, begin
    _decode_add(payload.numpy(), norms.numpy(), *numbers, out.numpy())
