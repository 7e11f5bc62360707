"""1-bit quantisation: sum the elements of either sign and pack the signs in one pass."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s, Uint32s, Uint64s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack_bits
from compressors.kernels.cpu.scales import INFINITY, MAGNITUDE, NAN, load, store
from compressors.kernels.cpu.sums import CHUNK, LANES, combine, fold


@helper
def _chunk_sums(x: Float32s, positive: Float64s, negative: Float64s) -> None:
    """Write LANES sums of the positive elements, and LANES sums of the others, including NaN."""
    positive[:] = 0.0
    negative[:] = 0.0
    whole = x.size // LANES * LANES
    for row in range(0, whole, LANES):
        for lane in range(LANES):
            value = x[row + lane]
            above = value if value > np.float32(0.0) else np.float32(0.0)
            below = np.float32(0.0) if value > np.float32(0.0) else value
            positive[lane] += np.float64(above)
            negative[lane] += np.float64(below)
    for index in range(whole, x.size):
        value = x[index]
        if value > np.float32(0.0):
            positive[index - whole] += np.float64(value)
        else:
            negative[index - whole] += np.float64(value)


@helper
def _signs(bits: Int32s, signs: Uint8s, eights: Uint64s, payload: Uint8s) -> int:
    """Pack the sign bits of at most CHUNK elements; return how many are set."""
    count = np.int32(0)
    for index in range(bits.size):
        sign = np.uint32(np.uint32(bits[index]) >> np.uint32(31))
        count += np.int32(sign)
        signs[index] = np.uint8(sign)
    signs[bits.size : 8 * payload.size] = 0
    pack_bits(eights, payload)
    return count


@kernel("void(float32[::1], int32[::1], int64, uint8[::1])")
def _encode(x: Float32s, bits: Int32s, bucket: int, payload: Uint8s) -> None:
    signs = np.empty(CHUNK, np.uint8)
    eights = signs.view(np.uint64)
    totals = np.empty((2, (min(bucket, x.size) + CHUNK - 1) // CHUNK))
    positive, negative = np.empty(LANES), np.empty(LANES)
    mean_value = np.empty(2, np.float32)
    mean_bits = mean_value.view(np.int32)
    buckets = (x.size + bucket - 1) // bucket
    position = 8 * buckets
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        chunks = (stop - start + CHUNK - 1) // CHUNK
        count = 0
        for chunk in range(chunks):
            first = start + chunk * CHUNK
            last = min(first + CHUNK, stop)
            _chunk_sums(x[first:last], positive, negative)
            totals[0, chunk] = fold(positive)
            totals[1, chunk] = fold(negative)
            ahead = position + ((last - first + 7) >> 3)
            count += _signs(bits[first:last], signs, eights, payload[position:ahead])
            position = ahead
        above = combine(totals[0, :chunks], positive)
        below = combine(totals[1, :chunks], positive)
        mean_value[0] = np.float32(above / max(1, stop - start - count))
        mean_value[1] = np.float32(below / max(1, count))
        bad = not (np.isfinite(above) and np.isfinite(below))
        for which in range(2):
            store(payload, 2 * number + which, NAN if bad else mean_bits[which])


@helper
def _add_words(words: Uint32s, factor_bits: Int32s, value: Float32s, value_bits: Int32s, out: Float32s) -> None:
    """Add one of two factors to each of at most BLOCK elements of `out`: the second if bit i is set, else the first.

    The choice is made between the factors' bits, since numba does not compile a choice between floats to SIMD.
    """
    one = factor_bits[0]
    change = np.int32(factor_bits[0] ^ factor_bits[1])
    for group in range((out.size + 31) >> 5):
        word = np.int32(words[group])
        row = value_bits[32 * group : 32 * group + 32]
        for lane in range(32):
            mask = np.int32(np.int32(word << np.int32(31 - lane)) >> np.int32(31))
            row[lane] = np.int32(one ^ np.int32(change & mask))
    for index in range(out.size):
        out[index] += value[index]


@helper
def _are_means(positive: np.int32, negative: np.int32) -> bool:
    """Tell whether these can be the two means of an encoder: both NaN, or the first at least +0 and the second at most
    -0 or +0.
    """
    if positive == NAN or negative == NAN:
        return bool(positive == negative)
    below = np.int32(negative & MAGNITUDE)
    return bool(0 <= positive < INFINITY and below < INFINITY and negative <= 0)


@kernel("boolean(uint8[::1], int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, bucket: int, weight: float, out: Float32s) -> bool:
    words = np.zeros(BLOCK // 32, np.uint32)
    packed = words.view(np.uint8)
    value = np.empty(BLOCK, np.float32)
    value_bits = value.view(np.int32)
    mean_bits = np.empty(2, np.int32)
    mean_value = mean_bits.view(np.float32)
    buckets = (out.size + bucket - 1) // bucket
    position = 8 * buckets
    for number in range(buckets):
        mean_bits[0] = load(payload, 2 * number)
        mean_bits[1] = load(payload, 2 * number + 1)
        if not _are_means(mean_bits[0], mean_bits[1]):
            return False
        for which in range(2):
            mean_value[which] = np.float32(weight * np.float64(mean_value[which]))
        start = number * bucket
        stop = min(start + bucket, out.size)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            size = (last - first + 7) >> 3
            for index in range(size):
                packed[index] = payload[position + index]
            position += size
            _add_words(words, mean_bits, value, value_bits, out[first:last])
    return True


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), bucket, payload.numpy())


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), bucket, weight, array(out)))
