"""Rounding to evenly spaced levels: one pass over the tensor, bucket by bucket, that also packs the bits.

`reference.integers` is the same arithmetic in plain torch.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s, Uint16s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack
from compressors.kernels.cpu.primitives.rounding import add_levels, apply_sign, round_stochastically
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.scales import INFINITY, MAGNITUDE, NAN, is_scale, load, store

# Adding it to a float32 from 0 to 2^22 leaves no bit for a fraction: the sum is rounded to the nearest even.
_WHOLE = np.float32(2.0**23)
_HUGE = np.float32(2.0**126)


@helper
def _bounds(bits: Int32s, symmetric: bool, found: Int32s) -> None:
    """Write the bounds of a bucket to `found` (2,), as bits: its smallest and largest element, or 0 and the largest
    magnitude.

    Both are NaN if there is a NaN or Inf. Elements are compared by their bits, all but the sign flipped if negative.
    """
    smallest = MAGNITUDE
    largest = np.int32(-MAGNITUDE)
    magnitude = np.int32(0)
    for index in range(bits.size):
        order = np.int32(bits[index] ^ ((bits[index] >> 31) & MAGNITUDE))
        smallest = min(smallest, order)
        largest = max(largest, order)
        magnitude = max(magnitude, np.int32(bits[index] & MAGNITUDE))
    found[0] = np.int32(smallest ^ ((smallest >> 31) & MAGNITUDE))
    found[1] = np.int32(largest ^ ((largest >> 31) & MAGNITUDE))
    if symmetric:
        found[0] = 0
        found[1] = magnitude
    if magnitude >= INFINITY:
        found[:] = NAN


@helper
def _place_symmetric(x: Float32s, scale: np.float32, levels: np.float32, exact: Float32s) -> None:
    """Compute exact[i] = |x[i]| in units of the distance between levels, `scale` / `levels`."""
    for index in range(x.size):
        exact[index] = abs(x[index]) / scale * levels


@helper
def _place_between(x: Float32s, low: np.float32, high: np.float32, levels: np.float32, exact: Float32s) -> None:
    """Compute exact[i] = x[i] - `low` in units of the distance between levels.

    Huge numbers are halved first, since float32 could not hold their difference.
    """
    factor = np.float32(0.5) if max(abs(low), abs(high)) >= _HUGE else np.float32(1.0)
    start = low * factor
    length = high * factor - start
    # Nothing to divide by where all are equal, or denormal and flushed by the processor.
    length = length if length > 0 else np.float32(1.0)
    for index in range(x.size):
        exact[index] = (x[index] * factor - start) / length * levels


@helper
def _round(exact: Float32s, stochastic: bool, stream: np.uint64, first: int, level: Int32s) -> None:
    """Round `exact` to the nearest integers, or to one of the two neighbours at random.

    `first` is the index of exact[0] in the bucket.
    """
    low, high = halves(stream)
    start = np.uint32(first)
    if stochastic:
        for index in range(exact.size):
            level[index] = round_stochastically(exact[index], draw(low, high, np.uint32(start + np.uint32(index))))
    else:
        for index in range(exact.size):
            level[index] = np.int32((exact[index] + _WHOLE) - _WHOLE)


@helper
def _write_codes(level: Int32s, bits: Int32s, offset: np.int32, codes: Uint16s) -> None:
    """Write the levels as codes; if there is an offset, a code is the offset plus the level with the element's sign."""
    if offset == 0:
        for index in range(bits.size):
            codes[index] = np.uint16(level[index])
    else:
        for index in range(bits.size):
            codes[index] = np.uint16(np.int32(offset + apply_sign(level[index], bits[index])))


@kernel("void(float32[::1], int32[::1], uint64, int64, int64, boolean, boolean, uint8[::1])")
def _encode(
    x: Float32s, bits: Int32s, key: np.uint64, width: int, bucket: int, minmax: bool, stochastic: bool, payload: Uint8s
) -> None:
    """Write the payload of `x` into `payload`, which has exactly the right length; `bits` is a view of `x`."""
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK // 4 + 1, np.uint64)
    exact = np.empty(BLOCK, np.float32)
    level = np.empty(BLOCK, np.int32)
    bound_bits = np.empty(2, np.int32)
    bound = bound_bits.view(np.float32)
    sent = bound_bits if minmax else bound_bits[1:]
    top = (1 << width) - 1 if minmax else (1 << (width - 1)) - 1
    offset = np.int32(0 if minmax else top)
    buckets = (x.size + bucket - 1) // bucket
    position = 4 * sent.size * buckets
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        _bounds(bits[start:stop], not minmax, bound_bits)
        for which in range(sent.size):
            store(payload, number * sent.size + which, sent[which])
        stream = stream_bits(key, np.uint64(number))
        scale = bound[1] if bound[1] > 0 else np.float32(1.0)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            count = last - first
            if bound_bits[1] == NAN:
                codes[:count] = offset
            else:
                if minmax:
                    _place_between(x[first:last], bound[0], bound[1], np.float32(top), exact[:count])
                else:
                    _place_symmetric(x[first:last], scale, np.float32(top), exact[:count])
                _round(exact[:count], stochastic, stream, first - start, level[:count])
                _write_codes(level[:count], bits[first:last], offset, codes[:count])
            position = pack(codes, count, width, staged, payload, position)


@helper
def _add_between(codes: Uint16s, top: np.float32, low: np.float32, high: np.float32, out: Float32s) -> None:
    """Compute out[i] += level number codes[i] of the levels from `low` (code 0) to `high` (code `top`)."""
    for index in range(out.size):
        code = np.float32(codes[index])
        out[index] += low * ((top - code) / top) + high * (code / top)


@helper
def _are_valid_bounds(bits: Int32s, value: Float32s, minmax: bool) -> bool:
    """Tell whether an encoder can have written these bounds of a bucket."""
    if not minmax:
        return is_scale(bits[1])
    if bits[1] == NAN:
        return bool(bits[0] == NAN)
    for index in range(2):
        if (bits[index] & MAGNITUDE) >= INFINITY:
            return False
    return bool(value[0] <= value[1])


@kernel("boolean(uint8[::1], int64, int64, boolean, float64, float32[::1])")
def _decode_add(payload: Uint8s, width: int, bucket: int, minmax: bool, weight: float, out: Float32s) -> bool:
    """Add weight * Q(x), decoded from `payload` of the right length, to `out`.

    Return False if `encode` cannot have written the payload.
    """
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.zeros(BLOCK // 4 + 1, np.uint64)
    bound_bits = np.zeros(2, np.int32)
    bound = bound_bits.view(np.float32)
    sent = bound_bits if minmax else bound_bits[1:]
    top = np.float32((1 << width) - 1 if minmax else (1 << (width - 1)) - 1)
    buckets = (out.size + bucket - 1) // bucket
    position = 4 * sent.size * buckets
    for number in range(buckets):
        for which in range(sent.size):
            sent[which] = load(payload, number * sent.size + which)
        if not _are_valid_bounds(bound_bits, bound, minmax):
            return False
        low = np.float32(weight * np.float64(bound[0]))
        high = np.float32(weight * np.float64(bound[1]))
        start = number * bucket
        stop = min(start + bucket, out.size)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            count = last - first
            position = unpack(payload, position, count, width, staged, codes)
            if minmax:
                _add_between(codes[:count], top, low, high, out[first:last])
            elif not add_levels(codes[:count], top, high, out[first:last]):
                return False
    return True


def encode(
    x: torch.Tensor, key: int, width: int, bucket: int, minmax: bool, stochastic: bool, payload: torch.Tensor
) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), width, bucket, minmax, stochastic, payload.numpy())


def decode_add(payload: torch.Tensor, width: int, bucket: int, minmax: bool, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), width, bucket, minmax, weight, array(out)))
