"""Dithering to powers of two times a norm, in one pass that also packs the bits."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu import scales
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s, Uint16s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.cpu.primitives.rounding import RESOLUTION, apply_sign
from compressors.kernels.cpu.primitives.streams import draw, halves
from compressors.kernels.cpu.sums import CHUNK, LANES

_ONE = np.int32(0x3F800000)
_SIGN = np.int32(-0x80000000)


@helper
def _round_block(
    x: Float32s,
    bits: Int32s,
    norm: np.float32,
    steps: np.int32,
    top: np.float32,
    stream: np.uint64,
    counter: np.uint32,
    relative: Float32s,
    codes: Uint16s,
) -> None:
    """Round elements to powers of two: a code is the number of the power, with the sign of x, plus `steps`.

    `relative` is |x| / norm in units of the smallest power. From 1 on, 23 random bits added to the fraction of this
    float carry into the exponent with the probability of rounding up; below 1, `relative` is itself this probability.
    """
    relative_bits = relative.view(np.int32)
    low, high = halves(stream)
    for index in range(x.size):
        relative[index] = abs(x[index]) / norm * top
    for index in range(x.size):
        u = draw(low, high, np.uint32(counter + np.uint32(index)))
        power = np.int32(np.int32(relative_bits[index] + np.int32(u >> np.uint32(9))) >> 23) - np.int32(126)
        small = relative[index] if relative_bits[index] < _ONE else np.float32(0.0)
        hit = np.int32(np.int32(u >> np.uint32(1)) < np.int32(small * RESOLUTION))
        power = np.int32(power if relative_bits[index] >= _ONE else hit)
        codes[index] = np.uint16(np.int32(steps + apply_sign(power, bits[index])))


@kernel("void(float32[::1], int32[::1], uint64, int64, int64, int64, boolean, uint8[::1])")
def _encode(
    x: Float32s, bits: Int32s, key: np.uint64, steps: int, width: int, bucket: int, euclidean: bool, payload: Uint8s
) -> None:
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK // 4 + 1, np.uint64)
    relative = np.empty(BLOCK, np.float32)
    totals = np.empty((min(bucket, x.size) + CHUNK - 1) // CHUNK, np.float64)
    lanes = np.empty(LANES, np.float64)
    top = np.float32(2.0 ** (steps - 1))
    buckets = (x.size + bucket - 1) // bucket
    parts = (bucket + scales.PART - 1) // scales.PART
    position = 4 * buckets
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        if euclidean:
            total = scales.sum_squares(x[start:stop], totals, lanes)
            norm = scales.bits_of(
                np.float32(np.sqrt(min(total, scales.LARGEST_SQUARE) if np.isfinite(total) else total))
            )
        else:
            norm = scales.largest(bits[start:stop])
        norm = scales.canonical(norm)
        scales.store(payload, number, norm)
        divisor = scales.divisor_of(norm)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            count = last - first
            if norm == scales.NAN:
                codes[:count] = steps
            else:
                stream = scales.stream_of(key, number, parts, first - start)
                counter, block = np.uint32((first - start) % scales.PART), bits[first:last]
                _round_block(x[first:last], block, divisor, np.int32(steps), top, stream, counter, relative, codes)
            position = pack(codes, count, width, staged, payload, position)


@helper
def _add_block(
    codes: Uint16s, steps: np.int32, factor: np.float32, value: Float32s, value_bits: Int32s, out: Float32s
) -> bool:
    """Compute out[i] += factor * the power with code codes[i]; return False if a code is larger than 2 * steps."""
    above = np.int32(0)
    for index in range(out.size):
        code = np.int32(codes[index])
        above = max(above, code)
        signed = np.int32(code - steps)
        power = abs(signed)
        exponent = np.int32(np.int32(power + np.int32(127)) - steps) if power > 0 else np.int32(0)
        value_bits[index] = np.int32(np.int32(exponent << 23) | np.int32(signed & _SIGN))
    for index in range(out.size):
        out[index] += factor * value[index]
    return bool(above <= 2 * steps)


@kernel("boolean(uint8[::1], int64, int64, int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, steps: int, width: int, bucket: int, weight: float, out: Float32s) -> bool:
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.zeros(BLOCK // 4 + 1, np.uint64)
    value = np.empty(BLOCK, np.float32)
    value_bits = value.view(np.int32)
    buckets = (out.size + bucket - 1) // bucket
    position = 4 * buckets
    for number in range(buckets):
        scale = scales.load(payload, number)
        if not scales.is_scale(scale):
            return False
        factor = scales.factor_of(scale, weight)
        start = number * bucket
        stop = min(start + bucket, out.size)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            position = unpack(payload, position, last - first, width, staged, codes)
            if not _add_block(codes, np.int32(steps), factor, value, value_bits, out[first:last]):
                return False
    return True


def encode(
    x: torch.Tensor, key: int, steps: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), steps, width, bucket, euclidean, payload.numpy())


def decode_add(payload: torch.Tensor, steps: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), steps, width, bucket, weight, array(out)))
