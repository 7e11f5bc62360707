"""Compute and store the scale of a bucket and its random stream, once for all elements of the bucket."""

from __future__ import annotations

import numpy as np

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper
from compressors.kernels.cpu.primitives.streams import stream_bits
from compressors.kernels.cpu.sums import CHUNK, GROUP, LANES, combine, fold

MAGNITUDE = np.int32(0x7FFFFFFF)
INFINITY = np.int32(0x7F800000)
NAN = np.int32(0x7FC00000)
LARGEST_SQUARE = float(np.finfo(np.float32).max) ** 2
PART = 1 << 30
"""Elements that are drawn from one stream; a bucket that is longer has several."""


@helper
def largest(bits: Int32s) -> np.int32:
    """Return the largest magnitude, as bits.

    The integer order of magnitudes' bits is the order of float32, with Inf and then NaN above every number, and an
    integer maximum is one SIMD instruction.
    """
    found = np.int32(0)
    for index in range(bits.size):
        found = max(found, np.int32(bits[index] & MAGNITUDE))
    return found


@helper
def sum_squares(x: Float32s, totals: Float64s, lanes: Float64s) -> float:
    """Return the sum of x^2, in the order of `reference.sums`; `totals` is a buffer with a number for each chunk of
    `x`.
    """
    chunks = (x.size + CHUNK - 1) // CHUNK
    for chunk in range(chunks):
        lanes[:] = 0.0
        part = x[chunk * CHUNK : min((chunk + 1) * CHUNK, x.size)]
        whole = part.size // GROUP * GROUP
        for first in range(0, whole, GROUP):
            group = part[first : first + GROUP]
            for lane in range(LANES):
                total = lanes[lane]
                for row in range(0, GROUP, LANES):
                    value = np.float64(group[row + lane])
                    total += value * value
                lanes[lane] = total
        for index in range(whole, part.size):
            value = np.float64(part[index])
            lanes[index % LANES] += value * value
        totals[chunk] = fold(lanes)
    return combine(totals[:chunks], lanes)


@helper
def store(payload: Uint8s, number: int, bits: np.int32) -> None:
    """Write the float32 with index `number` into `payload`, which may start at any address."""
    for byte in range(4):
        payload[4 * number + byte] = np.uint8(bits >> (8 * byte))


@helper
def load(payload: Uint8s, number: int) -> np.int32:
    """Return the bits of the float32 with index `number` in `payload`, which may start at any address."""
    bits = np.int32(0)
    for byte in range(4):
        bits |= np.int32(payload[4 * number + byte]) << (8 * byte)
    return np.int32(bits)


@helper
def float_of(bits: np.int32) -> np.float32:
    """Return the float32 that has these bits."""
    return np.int32(bits).view(np.float32)


@helper
def bits_of(value: np.float32) -> np.int32:
    """Return the bits of a float32."""
    return np.float32(value).view(np.int32)


@helper
def canonical(bits: np.int32) -> np.int32:
    """Return a scale's bits, with every NaN and Inf replaced by the one NaN that is sent."""
    return NAN if bits >= INFINITY or bits < 0 else bits


@helper
def divisor_of(bits: np.int32) -> np.float32:
    """Return the divisor for a scale: the scale, or 1 if it is zero (or a denormal that the processor flushes)."""
    scale = float_of(bits)
    return scale if scale > 0 else np.float32(1.0)


@helper
def factor_of(bits: np.int32, weight: float) -> np.float32:
    """Return weight * scale, rounded only once."""
    return np.float32(weight * np.float64(float_of(bits)))


@helper
def is_scale(bits: np.int32) -> bool:
    """Tell whether an encoder can have written this scale: a non-negative number, or the one NaN that is sent."""
    return 0 <= bits < INFINITY or bits == NAN


@helper
def stream_of(key: np.uint64, number: int, parts: int, offset: int) -> np.uint64:
    """Return the random stream for the elements of bucket `number` that begin at `offset`; a full bucket has `parts`
    streams.
    """
    return stream_bits(key, np.uint64(number * parts + offset // PART))
