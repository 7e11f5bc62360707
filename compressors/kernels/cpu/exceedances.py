"""Statistics of magnitudes above a threshold; `kernels.reference.exceedances` defines the order of their sums."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Int64s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.sums import CHUNK, LANES, combine, fold

_MAGNITUDE = np.int32(0x7FFFFFFF)
_FRACTION = np.uint64((1 << 52) - 1)
_ONE = np.uint64(1023 << 52)
_BIAS = np.int64(1023)
_ZERO = np.uint64(0)
_52 = np.uint64(52)


@kernel("int64(float32[::1], int32[::1], int32, float64, float64[::1])")
def _moments_above(x: Float32s, bits: Int32s, threshold: np.int32, location: float, out: Float64s) -> int:
    chunks = (x.size + CHUNK - 1) // CHUNK
    totals = np.empty((2, chunks))
    plain, square = np.empty(LANES), np.empty(LANES)
    count = np.int64(0)
    for chunk in range(chunks):
        plain[:] = 0.0
        square[:] = 0.0
        first = chunk * CHUNK
        last = min(first + CHUNK, x.size)
        whole = first + ((last - first) // LANES) * LANES
        found = np.int32(0)
        for index in range(first, last):
            found += np.int32(np.int32(bits[index] & _MAGNITUDE) >= threshold)
        count += found
        for row in range(first, whole, LANES):
            for lane in range(LANES):
                excess = abs(np.float64(x[row + lane])) - location
                excess = excess if excess > 0.0 else 0.0
                plain[lane] += excess
                square[lane] += excess * excess
        for index in range(whole, last):
            excess = abs(np.float64(x[index])) - location
            excess = excess if excess > 0.0 else 0.0
            plain[index - whole] += excess
            square[index - whole] += excess * excess
        totals[0, chunk] = fold(plain)
        totals[1, chunk] = fold(square)
    out[0] = combine(totals[0], plain)
    out[1] = combine(totals[1], square)
    return count


@helper
def _split(bits: Uint64s) -> tuple[int, int]:
    """Replace non-negative float64 by their mantissas, and zeros by one; return the sum of exponents and the count.

    Both are of the numbers that are not zero.
    """
    exponents = np.int64(0)
    count = np.int64(0)
    for index in range(bits.size):
        here = bits[index]
        some = -np.int64(here != _ZERO)  # all bits or none: SIMD has no product of 64-bit integers
        exponents += (np.int64(here >> _52) - _BIAS) & some
        count -= some
        bits[index] = (here & _FRACTION) | _ONE
    return exponents, count


@helper
def _multiply(mantissas: Float64s, lanes: Float64s, lane_bits: Uint64s) -> tuple[int, float]:
    """Return the product of at most CHUNK mantissas as an exponent of two and a factor below 2^LANES."""
    lanes[:] = 1.0
    whole = mantissas.size // LANES * LANES
    for row in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] *= mantissas[row + lane]
    for index in range(whole, mantissas.size):
        lanes[index - whole] *= mantissas[index]
    exponents, _ = _split(lane_bits)
    half = LANES >> 1
    while half:
        for lane in range(half):
            lanes[lane] *= lanes[lane + half]
        half >>= 1
    return exponents, lanes[0]


@kernel("float64(float32[::1], int64[::1])")
def _logarithms(x: Float32s, out: Int64s) -> float:
    """Multiply the magnitudes that are not zero; return the product's mantissa, and write their count and its exponent
    to `out`.
    """
    block = np.empty(CHUNK)
    block_bits = block.view(np.uint64)
    lanes = np.empty(LANES)
    lane_bits = lanes.view(np.uint64)
    products = np.empty((x.size + CHUNK - 1) // CHUNK)
    product_bits = products.view(np.uint64)
    exponent = np.int64(0)
    out[0] = 0
    for chunk in range(products.size):
        part = x[chunk * CHUNK : (chunk + 1) * CHUNK]
        for index in range(part.size):
            block[index] = np.float64(abs(part[index]))
        added, count = _split(block_bits[: part.size])
        out[0] += count
        exponent += added
        added, products[chunk] = _multiply(block[: part.size], lanes, lane_bits)
        exponent += added
    left = products.size
    while left > 1:
        added, _ = _split(product_bits[:left])
        exponent += added
        chunks = (left + CHUNK - 1) // CHUNK
        for chunk in range(chunks):
            added, products[chunk] = _multiply(
                products[chunk * CHUNK : min((chunk + 1) * CHUNK, left)], lanes, lane_bits
            )
            exponent += added
        left = chunks
    added, _ = _split(product_bits[:1])
    out[1] = exponent + added
    return products[0]


def moments_above(x: torch.Tensor, threshold: int, location: float) -> tuple[int, float, float]:
    values, out = x.numpy(), np.empty(2)
    count = _moments_above(values, values.view(np.int32), np.int32(threshold), location, out)
    return int(count), float(out[0]), float(out[1])


def logarithms(x: torch.Tensor) -> tuple[int, int, float]:
    if not len(x):
        return 0, 0, 1.0
    out = np.empty(2, np.int64)
    mantissa = float(_logarithms(x.numpy(), out))
    return int(out[0]), int(out[1]), mantissa
