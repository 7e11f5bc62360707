"""TernGrad: first the scales of all buckets, then, after the workers have agreed on scales, the signs."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu import qsgd
from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s, Uint16s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack
from compressors.kernels.cpu.primitives.rounding import apply_sign, round_stochastically
from compressors.kernels.cpu.primitives.streams import draw, halves
from compressors.kernels.cpu.scales import (
    NAN,
    PART,
    bits_of,
    canonical,
    divisor_of,
    float_of,
    largest,
    store,
    stream_of,
)
from compressors.kernels.cpu.sums import CHUNK, LANES, combine, fold

_ROUNDING = 2.0**-40


@helper
def _chunk_sums(x: Float32s, plain: Float64s, square: Float64s) -> None:
    """Compute LANES sums of x and of x^2."""
    plain[:] = 0.0
    square[:] = 0.0
    whole = x.size // LANES * LANES
    for row in range(0, whole, LANES):
        for lane in range(LANES):
            value = np.float64(x[row + lane])
            plain[lane] += value
            square[lane] += value * value
    for index in range(whole, x.size):
        value = np.float64(x[index])
        plain[index - whole] += value
        square[index - whole] += value * value


@helper
def _limit(plain: float, square: float, count: int, clip: float) -> np.float32:
    """Return `clip` standard deviations; Inf if the elements differ only by the rounding of the sums."""
    mean = plain / count
    power = square / count
    variance = power - mean * mean
    if variance <= power * _ROUNDING:
        return np.float32(np.inf)
    return np.float32(clip * np.sqrt(variance))


@kernel("void(float32[::1], int32[::1], int64, float64, float32[::1])")
def _scales(x: Float32s, bits: Int32s, bucket: int, clip: float, out: Float32s) -> None:
    totals = np.empty((2, (min(bucket, x.size) + CHUNK - 1) // CHUNK))
    plain, square = np.empty(LANES), np.empty(LANES)
    for number in range(out.size):
        start = number * bucket
        stop = min(start + bucket, x.size)
        chunks = (stop - start + CHUNK - 1) // CHUNK
        found = np.int32(0)
        for chunk in range(chunks):
            first = start + chunk * CHUNK
            last = min(first + CHUNK, stop)
            found = max(found, largest(bits[first:last]))
            if clip > 0:
                _chunk_sums(x[first:last], plain, square)
                totals[0, chunk] = fold(plain)
                totals[1, chunk] = fold(square)
        found = canonical(found)
        out[number] = float_of(found)
        if clip > 0 and found != NAN:
            limit = _limit(combine(totals[0, :chunks], plain), combine(totals[1, :chunks], plain), stop - start, clip)
            out[number] = min(out[number], limit)


@helper
def _round_block(
    x: Float32s, bits: Int32s, own: np.float32, scale: np.float32, stream: np.uint64, counter: np.uint32, codes: Uint16s
) -> None:
    """Compute codes[i] = 1 + sign(x[i]) * (u < min(|x[i]|, own) / scale), u uniform in [0, 1)."""
    low, high = halves(stream)
    for index in range(x.size):
        magnitude = abs(x[index])
        magnitude = magnitude if magnitude < own else own
        level = round_stochastically(magnitude / scale, draw(low, high, np.uint32(counter + np.uint32(index))))
        codes[index] = np.uint16(np.int32(np.int32(1) + apply_sign(level, bits[index])))


@kernel("void(float32[::1], int32[::1], uint64, int64, float32[::1], float32[::1], uint8[::1])")
def _encode(
    x: Float32s, bits: Int32s, key: np.uint64, bucket: int, own: Float32s, scales: Float32s, payload: Uint8s
) -> None:
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK // 4 + 1, np.uint64)
    parts = (bucket + PART - 1) // PART
    position = 4 * scales.size
    for number in range(scales.size):
        scale = bits_of(scales[number])
        store(payload, number, scale)
        divisor = divisor_of(scale)
        start = number * bucket
        stop = min(start + bucket, x.size)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            count = last - first
            if scale == NAN:
                codes[:count] = 1
            else:
                stream = stream_of(key, number, parts, first - start)
                counter = np.uint32((first - start) % PART)
                _round_block(x[first:last], bits[first:last], own[number], divisor, stream, counter, codes)
            position = pack(codes, count, 2, staged, payload, position)


def scales(x: torch.Tensor, bucket: int, clip: float) -> torch.Tensor:
    values, found = x.numpy(), np.empty(-(-len(x) // bucket), np.float32)
    _scales(values, values.view(np.int32), bucket, clip, found)
    return torch.from_numpy(found)


def encode(
    x: torch.Tensor, key: int, bucket: int, own: torch.Tensor, scales: torch.Tensor, payload: torch.Tensor
) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), np.uint64(key), bucket, own.numpy(), scales.numpy(), payload.numpy())


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return qsgd.decode_add(payload, 1, 2, bucket, weight, out)
