"""8-bit floating point in one pass; `reference.fp8` is the same in plain torch."""

from __future__ import annotations

import functools

import numpy as np
import torch

from compressors.kernels.cpu import byte_levels
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.rounding import round_stochastically
from compressors.kernels.cpu.primitives.streams import draw, halves
from compressors.kernels.cpu.scales import (
    NAN,
    PART,
    bits_of,
    canonical,
    divisor_of,
    largest,
    store,
    stream_of,
)
from compressors.kernels.fp8_formats import FORMATS

_ABOVE = np.float32(256.0)  # of the evenly spaced numbers: their codes are at most 8
_HALFWAY = np.float32(12582912.0)  # 1.5 * 2^23: float32 has no fractions there, so adding it rounds to the nearest


@helper
def _code(rank: np.int32, bits: np.int32) -> np.uint8:
    """Return the code of a magnitude, with the sign of the float32 whose bits are `bits`; 0 has none."""
    return np.uint8(rank | (np.int32(np.int32(rank > 0) << np.int32(7)) & (bits >> np.int32(31))))


@helper
def _round_to_nearest(
    x: Float32s, bits: Int32s, scale: np.float32, numbers: Float32s, shift: np.int32, offset: np.int32, codes: Uint8s
) -> None:
    top, smallest, grid = numbers[0], numbers[1], numbers[2]
    half = np.int32(np.int32(np.int32(1) << np.int32(shift - np.int32(1))) - np.int32(1))
    for index in range(x.size):
        y = np.float32(abs(x[index]) / scale * top)
        own = bits_of(y)
        high = np.int32(np.int32(own + half + np.int32((own >> shift) & np.int32(1))) >> shift) - offset
        low = np.int32((min(y * grid, _ABOVE) + _HALFWAY) - _HALFWAY)
        codes[index] = _code(np.int32(low) if y < smallest else np.int32(high), bits[index])


@helper
def _round_at_random(
    x: Float32s,
    bits: Int32s,
    scale: np.float32,
    stream: np.uint64,
    numbers: Float32s,
    shift: np.int32,
    offset: np.int32,
    codes: Uint8s,
) -> None:
    top, smallest, grid = numbers[0], numbers[1], numbers[2]
    mask = np.int32(np.int32(np.int32(1) << shift) - np.int32(1))
    first, second = halves(stream)
    for index in range(x.size):
        random = draw(first, second, np.uint32(index))
        y = np.float32(abs(x[index]) / scale * top)
        own = bits_of(y)
        up = np.int32(random >> np.uint32(np.int32(32) - shift)) < np.int32(own & mask)
        high = np.int32(np.int32(own >> shift) + np.int32(up)) - offset
        low = round_stochastically(min(y * grid, _ABOVE), random)
        codes[index] = _code(np.int32(low) if y < smallest else np.int32(high), bits[index])


@kernel("void(float32[::1], int32[::1], uint64, int64, boolean, float32[::1], int32, int32, uint8[::1])")
def _encode(
    x: Float32s,
    bits: Int32s,
    key: np.uint64,
    bucket: int,
    stochastic: bool,
    numbers: Float32s,
    shift: np.int32,
    offset: np.int32,
    payload: Uint8s,
) -> None:
    """Write the payload of `x` into `payload`, which has exactly the right length; `bits` is a view of `x`."""
    buckets = (x.size + bucket - 1) // bucket
    parts = (bucket + PART - 1) // PART
    codes = payload[4 * buckets :]
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        scale = canonical(largest(bits[start:stop]))
        store(payload, number, scale)
        if scale == NAN:
            codes[start:stop] = 0
            continue
        divisor = divisor_of(scale)
        if not stochastic:
            _round_to_nearest(x[start:stop], bits[start:stop], divisor, numbers, shift, offset, codes[start:stop])
            continue
        for first in range(start, stop, PART):
            last = min(first + PART, stop)
            stream = stream_of(key, number, parts, first - start)
            _round_at_random(
                x[first:last], bits[first:last], divisor, stream, numbers, shift, offset, codes[first:last]
            )


@functools.cache
def _numbers(name: str) -> tuple[Float32s, np.int32, np.int32]:
    form = FORMATS[name]
    numbers = np.array([form.largest, form.smallest, form.grid], np.float32)
    return numbers, np.int32(form.shift), np.int32(form.offset)


@functools.cache
def _levels(name: str) -> Float32s:
    return np.array(FORMATS[name].list_values(), np.float32)


def encode(x: torch.Tensor, key: int, name: str, bucket: int, stochastic: bool, payload: torch.Tensor) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), bucket, stochastic, *_numbers(name), payload.numpy())


def decode_add(payload: torch.Tensor, name: str, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return byte_levels.decode_add(payload, _levels(name), FORMATS[name].top, bucket, weight, out)
