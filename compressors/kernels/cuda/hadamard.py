"""The randomised Hadamard transform of a block in registers, in Triton; `reference.hadamard` says what is computed.

Elements that are a stride apart are brought beside each other by reshaping.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import INFINITY, NAN, divide_by_scales, norms
from compressors.kernels.hadamard_blocks import pad


def sections(count: int, block: int, width: int, position: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield full blocks and the last, shorter one: the first number, how many they are, their length when padded, and
    the byte of the payload where their codes, of `width` bits, begin.

    The codes of all blocks begin at byte `position`.
    """
    full, rest = divmod(count, block)
    if full:
        yield 0, full, block, position
    if rest:
        yield full, 1, pad(rest), position + full * block * width // 8


def compute_norms(x: torch.Tensor, block: int) -> torch.Tensor:
    bits = norms(x, block, True)
    return torch.where(bits >= INFINITY.value, NAN.value, bits).view(torch.float32)


def count_folds(length: int) -> int:
    """Return the number of strides from 8 to half of the length of a padded block."""
    return length.bit_length() - 4


@triton.jit
def find_places(inside, LENGTH: tl.constexpr) -> tl.tensor:
    """Return the places of the elements `inside` of a transformed block, as int64."""
    return (inside % 8 * (LENGTH // 8) + inside // 8).to(tl.int64)


@triton.jit
def _add_pairs(y, STRIDE: tl.constexpr) -> tl.tensor:
    """Replace elements that are STRIDE apart by their sum and difference."""
    length: tl.constexpr = y.shape[0]
    pairs = tl.permute(tl.reshape(y, (length // (2 * STRIDE), 2, STRIDE)), (0, 2, 1))
    low, high = tl.split(pairs)
    return tl.reshape(tl.permute(tl.join(low + high, low - high), (0, 2, 1)), (length,))


@triton.jit
def _change_signs(y, key, number, inside) -> tl.tensor:
    """Change the signs of a block's elements where its stream says so; `key` is an int64."""
    coins = draw(stream_bits(key, number.to(tl.uint64)), (inside // 32).to(tl.uint32))
    flips = ((coins >> (inside & 31).to(tl.uint32)) & 1).to(tl.int32) << 31
    return (y.to(tl.int32, bitcast=True) ^ flips).to(tl.float32, bitcast=True)


@triton.jit
def rotate(x, norm, key, number, inside, FOLDS: tl.constexpr) -> tl.tensor:
    """Return the transform of a block (LENGTH,) over its norm, bits (1,), in the order of places."""
    length: tl.constexpr = x.shape[0]
    y = tl.reshape(divide_by_scales(x[None, :], norm), (length,))
    y = _change_signs(y, key, number, inside)
    for fold in tl.static_range(FOLDS):
        y = _add_pairs(y, length >> (fold + 1))
    y = _add_pairs(_add_pairs(_add_pairs(y, 1), 2), 4)
    return tl.reshape(tl.trans(tl.reshape(y, (length // 8, 8))), (length,))


@triton.jit
def rotate_back(y, key, number, inside, FOLDS: tl.constexpr) -> tl.tensor:
    """Return the inverse, times the length, of a transformed block in the order of elements."""
    y = _add_pairs(_add_pairs(_add_pairs(y, 4), 2), 1)
    for fold in tl.static_range(FOLDS):
        y = _add_pairs(y, 8 << fold)
    return _change_signs(y, key, number, inside)
