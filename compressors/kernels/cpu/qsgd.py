"""QSGD: one pass over the tensor to encode and one to decode, bucket by bucket, which also pack or unpack the bits.

A block of codes stays in the first-level cache between rounding and packing, so no buffer of the tensor's size is
allocated. `reference.qsgd` is the same arithmetic in plain torch.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu import scales
from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s, Uint16s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.cpu.primitives.rounding import add_levels, apply_sign, round_stochastically
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.sums import sum_squares_in_8_lanes


@helper
def _euclidean(x: Float32s, sums: Float64s) -> np.float32:
    """Return the l2 norm; NaN or Inf if `x` holds one. A norm beyond float32 becomes the largest float32."""
    total = sum_squares_in_8_lanes(x, sums)
    if np.isfinite(total):
        total = min(total, scales.LARGEST_SQUARE)
    return np.float32(np.sqrt(total))


@helper
def scale_of(x: Float32s, bits: Int32s, euclidean: bool, sums: Float64s) -> np.int32:
    """Return the norm of `x` as bits; NAN if `x` holds NaN or Inf."""
    return scales.canonical(scales.bits_of(_euclidean(x, sums)) if euclidean else scales.largest(bits))


@helper
def round_block(
    x: Float32s,
    bits: Int32s,
    scale: np.float32,
    levels: np.float32,
    stream: np.uint64,
    counter: np.uint32,
    codes: Uint16s,
) -> None:
    """Compute codes[i] = levels + sign(x[i]) * floor(|x[i]| / scale * levels + u), u uniform in [0, 1)."""
    offset = np.int32(levels)
    low, high = halves(stream)
    for index in range(x.size):
        exact = abs(x[index]) / scale * levels
        level = round_stochastically(exact, draw(low, high, np.uint32(counter + np.uint32(index))))
        codes[index] = np.uint16(np.int32(offset + apply_sign(level, bits[index])))


@kernel("void(float32[::1], int32[::1], uint64, int64, int64, int64, boolean, uint8[::1])")
def _encode(
    x: Float32s, bits: Int32s, key: np.uint64, levels: int, width: int, bucket: int, euclidean: bool, payload: Uint8s
) -> None:
    """Write the payload of `x` into `payload`, which has exactly the right length; `bits` is a view of `x`."""
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK // 4 + 1, np.uint64)
    sums = np.empty(8, np.float64)
    buckets = (x.size + bucket - 1) // bucket
    position = 4 * buckets
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        scale = scale_of(x[start:stop], bits[start:stop], euclidean, sums)
        scales.store(payload, number, scale)
        stream = stream_bits(key, np.uint64(number))
        divisor = scales.divisor_of(scale)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            count = last - first
            if scale == scales.NAN:
                codes[:count] = levels
            else:
                counter = np.uint32(first - start)
                round_block(x[first:last], bits[first:last], divisor, np.float32(levels), stream, counter, codes)
            position = pack(codes, count, width, staged, payload, position)


@kernel("boolean(uint8[::1], int64, int64, int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, levels: int, width: int, bucket: int, weight: float, out: Float32s) -> bool:
    """Add weight * Q(x), decoded from `payload` of the right length, to `out`.

    Return False if `encode` cannot have written the payload.
    """
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.zeros(BLOCK // 4 + 1, np.uint64)
    buckets = (out.size + bucket - 1) // bucket
    position = 4 * buckets
    steps = np.float32(levels)
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
            if not add_levels(codes, steps, factor, out[first:last]):
                return False
    return True


def encode(
    x: torch.Tensor, key: int, levels: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), levels, width, bucket, euclidean, payload.numpy())


def decode_add(payload: torch.Tensor, levels: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), levels, width, bucket, weight, array(out)))
