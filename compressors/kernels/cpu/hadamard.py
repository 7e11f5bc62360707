"""The randomised Hadamard transform of a block in the first-level cache; `reference.hadamard` is the same in plain
torch.

The strides of the transform below 8 are those of neighbouring elements. They are done by reading pairs and writing
their sums and differences to two halves, which rotates the bits of the elements' numbers, so that all loops run over
neighbours.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels import hadamard_blocks
from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.streams import draw, halves
from compressors.kernels.cpu.scales import LARGEST_SQUARE, NAN, bits_of, divisor_of, float_of, sum_squares
from compressors.kernels.cpu.sums import LANES

pad = helper(hadamard_blocks.pad)
LONGEST = hadamard_blocks.LONGEST


@helper
def compute_norm(part: Float32s, totals: Float64s, lanes: Float64s) -> np.int32:
    """Return the l2 norm of a block as bits, at most the largest float32; NAN if the block holds NaN or Inf.

    `totals` and `lanes` are buffers of 1 and LANES numbers.
    """
    square = sum_squares(part, totals, lanes)
    return bits_of(np.float32(np.sqrt(min(square, LARGEST_SQUARE)))) if square < np.inf else NAN


@kernel("void(float32[::1], int64, float32[::1])")
def _compute_norms(x: Float32s, block: int, norms: Float32s) -> None:
    totals, lanes = np.empty(1), np.empty(LANES)
    for number in range(norms.size):
        part = x[number * block : min((number + 1) * block, x.size)]
        norms[number] = float_of(compute_norm(part, totals, lanes))


def compute_norms(x: torch.Tensor, block: int) -> torch.Tensor:
    found = np.empty(hadamard_blocks.count_blocks(len(x), block), np.float32)
    _compute_norms(x.numpy(), block, found)
    return torch.from_numpy(found)


@helper
def _change_signs(bits: Int32s, stream: np.uint64) -> None:
    """Change the signs of the float32 with these bits where the stream says so."""
    low, high = halves(stream)
    for start in range(0, bits.size, 32):
        coins = draw(low, high, np.uint32(start >> 5))
        part = bits[start : min(start + 32, bits.size)]
        for index in range(part.size):
            part[index] ^= np.int32(np.uint32(coins >> np.uint32(index)) << np.uint32(31))


@helper
def _add_pairs(y: Float32s, stride: int) -> None:
    """Replace elements that are `stride` apart by their sum and difference."""
    for first in range(0, y.size, 2 * stride):
        low = y[first : first + stride]
        high = y[first + stride : first + 2 * stride]
        for index in range(stride):
            one = low[index]
            other = high[index]
            low[index] = one + other
            high[index] = one - other


@helper
def _separate(y: Float32s, into: Float32s) -> None:
    """Write the sums of neighbours to the first half of `into`, and their differences to the second."""
    half = y.size >> 1
    sums = into[:half]
    differences = into[half : y.size]
    for index in range(half):
        one = y[2 * index]
        other = y[2 * index + 1]
        sums[index] = one + other
        differences[index] = one - other


@helper
def _interleave(y: Float32s, into: Float32s) -> None:
    """Write sum and difference of each pair, an element of each half, beside each other."""
    half = y.size >> 1
    first = y[:half]
    second = y[half:]
    for index in range(half):
        one = first[index]
        other = second[index]
        into[2 * index] = one + other
        into[2 * index + 1] = one - other


@helper
def rotate(part: Float32s, norm: np.int32, stream: np.uint64, y: Float32s, z: Float32s) -> None:
    """Write the transform of a block over its norm, given as bits, to `z`; `y` is a buffer of the same length.

    The block is not divided by a norm of zero, and is zero if its norm is NaN.
    """
    if norm == NAN:
        y[:] = 0.0
    else:
        divisor = divisor_of(norm)
        y[part.size :] = 0.0
        for index in range(part.size):
            y[index] = part[index] / divisor
    _change_signs(y.view(np.int32), stream)
    stride = y.size >> 1
    while stride >= 8:
        _add_pairs(y, stride)
        stride >>= 1
    _separate(y, z)
    _separate(z, y)
    _separate(y, z)


@helper
def rotate_back(z: Float32s, stream: np.uint64, y: Float32s) -> None:
    """Write the inverse of the transform `z`, times the length of the block, to `y`; `z` is overwritten."""
    _interleave(z, y)
    _interleave(y, z)
    _interleave(z, y)
    stride = 8
    while stride < y.size:
        _add_pairs(y, stride)
        stride <<= 1
    _change_signs(y.view(np.int32), stream)
