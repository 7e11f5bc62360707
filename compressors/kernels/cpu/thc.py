"""THC, block by block in the first-level cache; `reference.thc` is the same in plain torch."""

from __future__ import annotations

import functools

import numpy as np
import torch

from compressors.kernels.cpu.hadamard import LONGEST, pad, rotate, rotate_back
from compressors.kernels.cpu.hadamard import compute_norms as compute_norms
from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Uint8s, Uint16s, Uint32s
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
    lows: Float32s,
    slopes: Float32s,
    lower: Uint16s,
    steps: Uint16s,
    below: Uint32s,
    codes: Uint16s,
) -> None:
    """Round elements to the levels of the table; the codes of neighbours are `steps` apart, up to multiples of 256.

    `z` is overwritten; `below` is a buffer as long. Loops that look up numbers are apart from those that become SIMD.
    """
    low, high = halves(stream)
    top = middle + middle
    for index in range(z.size):
        exact = z[index] * scale + middle
        exact = exact if exact > 0 else np.float32(0.0)  # NaN is not above 0
        exact = exact if exact < top else top
        below[index] = np.uint32(np.int32(exact))
        z[index] = exact
    for index in range(z.size):
        z[index] = (z[index] - lows[below[index]]) * slopes[below[index]]
    for index in range(z.size):
        random = draw(low, high, np.uint32(counter + index))
        codes[index] = np.uint16(np.int32(random >> np.uint32(2)) < np.int32(z[index] * _RESOLUTION))
    for index in range(z.size):
        codes[index] = np.uint16((lower[below[index]] + codes[index] * steps[below[index]]) & np.uint16(255))


@kernel(
    "void(float32[::1], float32[::1], uint64, uint64, int64, int64, float32, float32, float32[::1], float32[::1],"
    " uint16[::1], uint16[::1], int64, uint8[::1])"
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
    lows: Float32s,
    slopes: Float32s,
    lower: Uint16s,
    steps: Uint16s,
    position: int,
    payload: Uint8s,
) -> None:
    """Write the codes of `x` into `payload`, from byte `position` on."""
    room, other = np.empty(LONGEST, np.float32), np.empty(LONGEST, np.float32)
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    below = np.empty(BLOCK, np.uint32)
    for number in range(norms.size):
        part = x[number * block : min((number + 1) * block, x.size)]
        length = pad(part.size)
        y, z = room[:length], other[:length]
        rotate(part, canonical(bits_of(norms[number])), stream_bits(rotation, np.uint64(number)), y, z)
        stream = stream_bits(key, np.uint64(number))
        for first in range(0, length, BLOCK):
            count = min(BLOCK, length - first)
            some, places = z[first : first + count], below[:count]
            _round_block(some, stream, first, scale, middle, lows, slopes, lower, steps, places, codes)
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
def _tables(coding: Coding) -> tuple[Array, ...]:
    """Return lower levels, slopes, lower codes and the steps from them to the upper ones, by level."""
    steps = np.subtract(coding.upper, coding.lower).astype(np.uint16)
    return (
        np.array(coding.lows, np.float32),
        np.array(coding.slopes, np.float32),
        np.array(coding.lower, np.uint16),
        steps,
    )


@functools.cache
def _values(coding: Coding) -> Float32s:
    return np.array(coding.values, np.float32)


def encode(
    x: torch.Tensor, norms: torch.Tensor, key: int, rotation: int, block: int, coding: Coding, payload: torch.Tensor
) -> None:
    keys, numbers = (np.uint64(key), np.uint64(rotation)), (np.float32(coding.scale), np.float32(coding.middle))
    begin = 4 * len(norms) if coding.head else 0
    _encode(x.numpy(), norms.numpy(), *keys, block, coding.width, *numbers, *_tables(coding), begin, payload.numpy())


def decode_add(
    payload: torch.Tensor,
    norms: torch.Tensor,
    rotation: int,
    block: int,
    coding: Coding,
    weight: float,
    out: torch.Tensor,
) -> None:
    begin = 4 * len(norms) if coding.head else 0
    numbers = np.uint64(rotation), block, coding.width, _values(coding), weight * coding.step, begin
    _decode_add(payload.numpy(), norms.numpy(), *numbers, out.numpy())
