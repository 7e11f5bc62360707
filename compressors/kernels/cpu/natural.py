"""Natural compression: send the exponent of a float32, rounded up with the probability that its fraction gives."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu import scales
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK
from compressors.kernels.cpu.primitives.streams import draw, halves

_FRACTION = np.int32(0x007FFFFF)
_LARGEST = np.int32(0x7F7FFFFF)


@helper
def _next_power(bits: np.int32) -> np.int32:
    """Return, as bits, the smallest power of two (from 2^-126 on) that is at least this magnitude.

    2^128 is replaced by the largest float32.
    """
    if bits == 0 or bits >= scales.INFINITY:
        return bits if bits == 0 else scales.NAN
    return min(np.int32((bits + _FRACTION) & scales.INFINITY), _LARGEST)


@helper
def _round_block(
    x: Float32s,
    bits: Int32s,
    scale: np.float32,
    stream: np.uint64,
    counter: np.uint32,
    relative: Float32s,
    codes: Uint8s,
) -> None:
    """Round |x| / scale <= 1 to powers of two, by adding 23 random bits to its fraction.

    The carry into the exponent has the probability of rounding up, also below 2^-126, where the powers are 2^-126 and
    0.
    """
    relative_bits = relative.view(np.int32)
    low, high = halves(stream)
    for index in range(x.size):
        relative[index] = abs(x[index]) / scale
    for index in range(x.size):
        u = np.int32(draw(low, high, np.uint32(counter + np.uint32(index))) >> np.uint32(9))
        exponent = np.int32(np.int32(relative_bits[index] + u) >> 23)
        codes[index] = np.uint8(np.int32(exponent | (np.int32(bits[index] >> 24) & np.int32(0x80))))


@kernel("void(float32[::1], int32[::1], uint64, int64, uint8[::1])")
def _encode(x: Float32s, bits: Int32s, key: np.uint64, bucket: int, payload: Uint8s) -> None:
    relative = np.empty(BLOCK, np.float32)
    buckets = (x.size + bucket - 1) // bucket
    parts = (bucket + scales.PART - 1) // scales.PART
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        scale = _next_power(scales.largest(bits[start:stop]))
        scales.store(payload, number, scale)
        codes = payload[4 * buckets + start : 4 * buckets + stop]
        if scale == scales.NAN:
            codes[:] = 0
            continue
        divisor = scales.divisor_of(scale)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            stream = scales.stream_of(key, number, parts, first - start)
            counter, block = np.uint32((first - start) % scales.PART), codes[first - start : last - start]
            _round_block(x[first:last], bits[first:last], divisor, stream, counter, relative, block)


@kernel("boolean(uint8[::1], int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, bucket: int, weight: float, out: Float32s) -> bool:
    value = np.empty(BLOCK, np.float32)
    value_bits = value.view(np.int32)
    buckets = (out.size + bucket - 1) // bucket
    for number in range(buckets):
        scale = scales.load(payload, number)
        if not (scales.is_scale(scale) and (scale & _FRACTION == 0 or scale in (_LARGEST, scales.NAN))):
            return False
        factor = scales.factor_of(scale, weight)
        start = number * bucket
        stop = min(start + bucket, out.size)
        for first in range(start, stop, BLOCK):
            part = out[first : min(first + BLOCK, stop)]
            codes = payload[4 * buckets + first : 4 * buckets + first + part.size]
            for index in range(part.size):
                code = np.int32(codes[index])
                value_bits[index] = np.int32(
                    np.int32((code & np.int32(0x7F)) << 23) | np.int32((code & np.int32(0x80)) << 24)
                )
            for index in range(part.size):
                part[index] += factor * value[index]
    return True


def encode(x: torch.Tensor, key: int, bucket: int, payload: torch.Tensor) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), bucket, payload.numpy())


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), bucket, weight, array(out)))
