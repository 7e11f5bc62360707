"""Sums over a whole tensor in one pass; `kernels.reference.sums` defines their order."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s
from compressors.kernels.cpu.primitives.jit import helper, kernel

CHUNK = 4096
LANES = 16
GROUP = 8 * LANES
"""Elements of which each lane is summed without a store: the compiler then turns a loop over lanes into SIMD."""


@helper
def fold(lanes: Float64s) -> float:
    """Return the sum of LANES lanes, by adding one half of them to the other until one is left; `lanes` are
    overwritten.
    """
    half = lanes.size >> 1
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half >>= 1
    return lanes[0]


@helper
def sum_squares_in_8_lanes(x: Float32s, sums: Float64s) -> float:
    """Return the sum of squares of `x`, in an order that all kernels share.

    The squares are exact in float64. Element i goes to lane i mod 8 of `sums`, and then the lanes are added in pairs.
    """
    sums[:] = 0.0
    whole = x.size >> 3 << 3
    for first in range(0, whole, 8):
        for lane in range(8):
            value = np.float64(x[first + lane])
            sums[lane] += value * value
    for index in range(whole, x.size):
        value = np.float64(x[index])
        sums[index - whole] += value * value
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))


@helper
def combine(totals: Float64s, lanes: Float64s) -> float:
    """Return the sum of the totals of chunks, in the order of `kernels.reference.sums`; `totals` are overwritten."""
    count = totals.size
    while count > 1:
        rows = (count + CHUNK - 1) // CHUNK
        for row in range(rows):
            lanes[:] = 0.0
            for index in range(row * CHUNK, min((row + 1) * CHUNK, count)):
                lanes[index % LANES] += totals[index]
            totals[row] = fold(lanes)
        count = rows
    return totals[0] if totals.size else 0.0


@kernel("void(float32[::1], float64[::1])")
def _moments(x: Float32s, out: Float64s) -> None:
    chunks = (x.size + CHUNK - 1) // CHUNK
    totals = np.empty((3, chunks))
    plain, absolute, square = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for chunk in range(chunks):
        plain[:] = 0.0
        absolute[:] = 0.0
        square[:] = 0.0
        first = chunk * CHUNK
        last = min(first + CHUNK, x.size)
        whole = first + ((last - first) // LANES) * LANES
        for row in range(first, whole, LANES):
            for lane in range(LANES):
                value = np.float64(x[row + lane])
                plain[lane] += value
                absolute[lane] += abs(value)
                square[lane] += value * value
        for index in range(whole, last):
            value = np.float64(x[index])
            plain[index - whole] += value
            absolute[index - whole] += abs(value)
            square[index - whole] += value * value
        totals[0, chunk] = fold(plain)
        totals[1, chunk] = fold(absolute)
        totals[2, chunk] = fold(square)
    for which in range(3):
        out[which] = combine(totals[which], plain)


def moments(x: torch.Tensor) -> tuple[float, float, float]:
    out = np.empty(3)
    _moments(x.numpy(), out)
    return float(out[0]), float(out[1]), float(out[2])
