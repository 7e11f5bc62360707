"""Quantisation after a random rotation in Triton; `reference.eden` says what is computed.

A program holds a block in registers. Elements that are a stride apart are brought beside each other by reshaping.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from compressors.kernels.buffers import write_floats
from compressors.kernels.cuda.primitives.launch import (
    float64_bits,
    is_raised,
    launch,
    make_flag,
    power_of_two,
    wrap_to_int64,
)
from compressors.kernels.cuda.primitives.packing import load_words, pack_at, unpack_at
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import LARGEST, add_to, canonical, divide_by_scales, factor_of, norms, read_scales
from compressors.kernels.cuda.sums import combine
from compressors.kernels.normal_levels import BORDERS, MAGNITUDES, VALUES
from compressors.kernels.reference.eden import pad


@functools.cache
def _tables(bits: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return borders, magnitudes and levels as float32; the borders end with a number that is not used."""
    rows = (*BORDERS[bits], 0.0), MAGNITUDES[bits], VALUES[bits]
    return tuple(torch.tensor(row, dtype=torch.float32, device=device) for row in rows)


def _sections(count: int, block: int, bits: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield full blocks and the last, shorter one: the first number, how many they are, their length when padded, and
    the byte of the payload where their codes begin.
    """
    full, rest = divmod(count, block)
    position = 8 + 4 * -(-count // block)
    if full:
        yield 0, full, block, position
    if rest:
        yield full, 1, pad(rest), position + full * block * bits // 8


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
    BYTES: tl.constexpr,
) -> None:
    """Write a block's codes, and the terms of the sums from which its scale is computed, (blocks, LENGTH) float64."""
    place = tl.program_id(0).to(tl.int64)
    number = first.to(tl.int64) + place
    inside = tl.arange(0, LENGTH)
    index = number * block.to(tl.int64) + inside
    value = tl.load(x + index, mask=(inside < block) & (index < count.to(tl.int64)), other=0.0)
    norm = canonical(tl.load(norms + number + tl.arange(0, 1)))
    y = tl.reshape(divide_by_scales(value[None, :], norm), (LENGTH,))
    y = _change_signs(y, key, number, inside)
    for fold in tl.static_range(FOLDS):
        y = _add_pairs(y, LENGTH >> (fold + 1))
    y = _add_pairs(_add_pairs(_add_pairs(y, 1), 2), 4)
    y = tl.reshape(tl.trans(tl.reshape(y, (LENGTH // 8, 8))), (LENGTH,))
    rank = tl.zeros((LENGTH,), tl.int32)
    level = tl.zeros((LENGTH,), tl.float32) + tl.load(magnitudes)
    for border in tl.static_range((1 << (WIDTH - 1)) - 1):
        above = tl.abs(y) > tl.load(borders + border)
        rank += above.to(tl.int32)
        level = tl.where(above, tl.load(magnitudes + border + 1), level)
    half: tl.constexpr = 1 << (WIDTH - 1)
    code = tl.where(y.to(tl.int32, bitcast=True) < 0, half - 1 - rank, half + rank)
    begin = position.to(tl.int64) + place * (LENGTH * WIDTH // 8) + tl.arange(0, LENGTH // 8).to(tl.int64) * WIDTH
    pack_at(payload, tl.reshape(code, (LENGTH // 8, 8)), begin, begin + WIDTH, WIDTH, BYTES)
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
    at = (inside % 8 * (LENGTH // 8) + inside // 8).to(tl.int64)
    y = tl.load(values + unpack_at(payload, begin, at, inside < LENGTH, WIDTH))
    y = _add_pairs(_add_pairs(_add_pairs(y, 4), 2), 1)
    for fold in tl.static_range(FOLDS):
        y = _add_pairs(y, 8 << fold)
    y = _change_signs(y, key, number, inside)
    index = number * block.to(tl.int64) + inside
    exists = (inside < block) & (index < count.to(tl.int64))
    add_to(out, index, exists, factor_of(scale, weight) * y)
    tl.store(wrong, 1, mask=bad > 0)


def _count_folds(length: int) -> int:
    """Return the number of strides from 8 to half of the length."""
    return length.bit_length() - 4


def encode(x: torch.Tensor, key: int, bits: int, block: int, unbiased: bool, payload: torch.Tensor) -> None:
    payload[:8] = torch.tensor([key >> 8 * byte & 255 for byte in range(8)], dtype=torch.uint8)
    found = norms(x, block, True)
    borders, magnitudes, _ = _tables(bits, x.device)
    for first, number, length, position in _sections(len(x), block, bits):
        products = torch.empty(number, length, dtype=torch.float64, device=x.device)
        squares = torch.empty_like(products)
        tensors = x, found, borders, magnitudes, payload, products, squares
        numbers = len(x), block, first, position, wrap_to_int64(key)
        constants = {"LENGTH": length, "FOLDS": _count_folds(length), "WIDTH": bits, "BYTES": power_of_two(bits)}
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
    wrong = make_flag(out)
    for first, number, length, position in _sections(len(out), block, bits):
        numbers = len(out), block, first, position, float64_bits(weight)
        constants = {"LENGTH": length, "FOLDS": _count_folds(length), "WIDTH": bits}
        launch(_decode_add, number, payload, out, wrong, _tables(bits, out.device)[2], *numbers, **constants)
    return not is_raised(wrong)
