"""Quantisation after a random rotation in Triton; `reference.eden` says what is computed.

A program holds a block in registers.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.buffers import write_floats
from compressors.kernels.cuda.hadamard import count_folds, find_places, rotate, rotate_back, sections
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import load_words, pack_at, unpack_at
from compressors.kernels.cuda.scales import LARGEST, add_to, canonical, factor_of, norms, read_scales
from compressors.kernels.cuda.sums import combine
from compressors.kernels.hadamard_blocks import count_blocks
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES, VALUES


@functools.cache
def _tables(bits: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return borders, magnitudes and levels as float32; the borders end with a number that is not used."""
    rows = (*BORDERS[bits], 0.0), MAGNITUDES[bits], VALUES[bits]
    return tuple(torch.tensor(row, dtype=torch.float32, device=device) for row in rows)


@triton.jit(do_not_specialize=["count", "block", "first", "position", "key"])
def _encode(
    x,
    norms,
    borders,
    magnitudes,
    payload,
    products,
    squares,
    count,
    block,
    first,
    position,
    key,
    LENGTH: tl.constexpr,
    FOLDS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write a block's codes, and the terms of the sums from which its scale is computed, (blocks, LENGTH) float64."""
    place = tl.program_id(0).to(tl.int64)
    number = first.to(tl.int64) + place
    inside = tl.arange(0, LENGTH)
    index = number * block.to(tl.int64) + inside
    value = tl.load(x + index, mask=(inside < block) & (index < count.to(tl.int64)), other=0.0)
    norm = canonical(tl.load(norms + number + tl.arange(0, 1)))
    y = rotate(value, norm, key, number, inside, FOLDS)
    rank = tl.zeros((LENGTH,), tl.int32)
    level = tl.zeros((LENGTH,), tl.float32) + tl.load(magnitudes)
    for border in tl.static_range((1 << (WIDTH - 1)) - 1):
        above = tl.abs(y) > tl.load(borders + border)
        rank += above.to(tl.int32)
        level = tl.where(above, tl.load(magnitudes + border + 1), level)
    half: tl.constexpr = 1 << (WIDTH - 1)
    code = tl.where(y.to(tl.int32, bitcast=True) < 0, half - 1 - rank, half + rank)
    begin = position.to(tl.int64) + place * (LENGTH * WIDTH // 8) + tl.arange(0, LENGTH // 8).to(tl.int64) * WIDTH
    pack_at(payload, tl.reshape(code, (LENGTH // 8, 8)), begin, begin + WIDTH, WIDTH)
    wide = level.to(tl.float64)
    tl.store(products + place * LENGTH + inside, tl.abs(y).to(tl.float64) * wide)
    tl.store(squares + place * LENGTH + inside, wide * wide)


@triton.jit(do_not_specialize=["count", "block", "first", "position", "weight"])
def _decode_add(
    payload,
    out,
    wrong,
    values,
    count,
    block,
    first,
    position,
    weight,
    LENGTH: tl.constexpr,
    FOLDS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    place = tl.program_id(0).to(tl.int64)
    number = first.to(tl.int64) + place
    inside = tl.arange(0, LENGTH)
    words = load_words(payload, tl.arange(0, 2).to(tl.int64), tl.arange(0, 2) < 2).to(tl.int64) & 0xFFFFFFFF
    key = tl.sum(words << (32 * tl.arange(0, 2)).to(tl.int64), axis=0)
    scale, bad = read_scales(payload + 8, number + tl.arange(0, 1), tl.arange(0, 1) < 1)
    begin = position.to(tl.int64) + place * (LENGTH * WIDTH // 8)
    y = tl.load(values + unpack_at(payload, begin, find_places(inside, LENGTH), inside < LENGTH, WIDTH))
    y = rotate_back(y, key, number, inside, FOLDS)
    index = number * block.to(tl.int64) + inside
    exists = (inside < block) & (index < count.to(tl.int64))
    add_to(out, index, exists, factor_of(scale, weight) * y)
    tl.store(wrong, 1, mask=bad > 0)


def encode(x: torch.Tensor, key: int, bits: int, block: int, unbiased: bool, payload: torch.Tensor) -> None:
    payload[:8] = torch.tensor([key >> 8 * byte & 255 for byte in range(8)], dtype=torch.uint8)
    found = norms(x, block, True)
    borders, magnitudes, _ = _tables(bits, x.device)
    for first, number, length, position in sections(len(x), block, bits, 8 + 4 * count_blocks(len(x), block)):
        products = torch.empty(number, length, dtype=torch.float64, device=x.device)
        squares = torch.empty_like(products)
        tensors = x, found, borders, magnitudes, payload, products, squares
        numbers = len(x), block, first, position, wrap_to_int64(key)
        constants = {"LENGTH": length, "FOLDS": count_folds(length), "WIDTH": bits}
        launch(_encode, number, *tensors, *numbers, **constants)
        norm = found[first : first + number].view(torch.float32).double()
        product = combine(products)
        if unbiased:
            scale = norm / torch.where(product > 0, product, 1.0)
        else:
            scale = norm * product / (length * combine(squares))
        scale = torch.where(norm.isfinite(), scale.clamp(max=LARGEST).float(), math.nan)
        write_floats(scale, payload[8 + 4 * first : 8 + 4 * (first + number)])


def decode_add(payload: torch.Tensor, bits: int, block: int, weight: float, out: torch.Tensor) -> bool:
    wrong = flags.make(out.device)
    for first, number, length, position in sections(len(out), block, bits, 8 + 4 * count_blocks(len(out), block)):
        numbers = len(out), block, first, position, float64_bits(weight)
        constants = {"LENGTH": length, "FOLDS": count_folds(length), "WIDTH": bits}
        launch(_decode_add, number, payload, out, wrong, _tables(bits, out.device)[2], *numbers, **constants)
    return not flags.is_refused(wrong)
