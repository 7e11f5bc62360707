"""THC in Triton; `reference.thc` says what is computed. A program holds a block in registers."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.hadamard import compute_norms as compute_norms
from compressors.kernels.cuda.hadamard import count_folds, find_places, rotate, rotate_back, sections
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import pack_at, unpack_at
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import add_to, canonical, factor_of
from compressors.kernels.thc_tables import Coding

_RESOLUTION = tl.constexpr(1073741824.0)


@functools.cache
def _tables(coding: Coding, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return levels and slopes, lower and upper codes, and values by code."""
    levels = torch.tensor((coding.lows, coding.slopes), dtype=torch.float32, device=device)
    symbols = torch.tensor((coding.lower, coding.upper), dtype=torch.int32, device=device)
    return levels, symbols, torch.tensor(coding.values, dtype=torch.float32, device=device)


@triton.jit(do_not_specialize=["count", "block", "first", "position", "key", "rotation"])
def _encode(
    x,
    norms,
    levels,
    symbols,
    payload,
    count,
    block,
    first,
    position,
    key,
    rotation,
    SCALE: tl.constexpr,
    MIDDLE: tl.constexpr,
    LENGTH: tl.constexpr,
    FOLDS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write a block's codes; tables have a number for each of 2 MIDDLE + 1 levels in each of two rows."""
    place = tl.program_id(0).to(tl.int64)
    number = first.to(tl.int64) + place
    inside = tl.arange(0, LENGTH)
    index = number * block.to(tl.int64) + inside
    value = tl.load(x + index, mask=(inside < block) & (index < count.to(tl.int64)), other=0.0)
    norm = canonical(tl.load(norms + number + tl.arange(0, 1)).to(tl.int32, bitcast=True))
    exact = rotate(value, norm, rotation, number, inside, FOLDS) * SCALE + MIDDLE
    exact = tl.where(exact > 0, exact, 0.0)  # NaN is not above 0
    exact = tl.where(exact < 2 * MIDDLE, exact, 2 * MIDDLE)
    below = exact.to(tl.int32)
    distance = (exact - tl.load(levels + below)) * tl.load(levels + (2 * MIDDLE + 1) + below)
    random = draw(stream_bits(key, number.to(tl.uint64)), inside.to(tl.uint32))
    up = (random >> 2).to(tl.int32) < (distance * _RESOLUTION).to(tl.int32)
    code = tl.load(symbols + below + tl.where(up, 2 * MIDDLE + 1, 0))
    begin = position.to(tl.int64) + place * (LENGTH * WIDTH // 8) + tl.arange(0, LENGTH // 8).to(tl.int64) * WIDTH
    pack_at(payload, tl.reshape(code, (LENGTH // 8, 8)), begin, begin + WIDTH, WIDTH)


@triton.jit(do_not_specialize=["count", "block", "first", "position", "rotation", "weight"])
def _decode_add(
    payload,
    norms,
    values,
    out,
    count,
    block,
    first,
    position,
    rotation,
    weight,
    LENGTH: tl.constexpr,
    FOLDS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    place = tl.program_id(0).to(tl.int64)
    number = first.to(tl.int64) + place
    inside = tl.arange(0, LENGTH)
    norm = tl.load(norms + number + tl.arange(0, 1)).to(tl.int32, bitcast=True)
    begin = position.to(tl.int64) + place * (LENGTH * WIDTH // 8)
    y = tl.load(values + unpack_at(payload, begin, find_places(inside, LENGTH), inside < LENGTH, WIDTH))
    y = rotate_back(y, rotation, number, inside, FOLDS)
    index = number * block.to(tl.int64) + inside
    exists = (inside < block) & (index < count.to(tl.int64))
    add_to(out, index, exists, factor_of(norm, weight) * y)


def encode(
    x: torch.Tensor, norms: torch.Tensor, key: int, rotation: int, block: int, coding: Coding, payload: torch.Tensor
) -> None:
    levels, symbols, _ = _tables(coding, x.device)
    begin = 4 * len(norms) if coding.head else 0
    for first, number, length, position in sections(len(x), block, coding.width, begin):
        tensors = x, norms, levels, symbols, payload
        numbers = len(x), block, first, position, wrap_to_int64(key), wrap_to_int64(rotation)
        sizes = {"LENGTH": length, "FOLDS": count_folds(length)}
        codes = {"WIDTH": coding.width}
        launch(_encode, number, *tensors, *numbers, SCALE=coding.scale, MIDDLE=int(coding.middle), **sizes, **codes)


def decode_add(
    payload: torch.Tensor,
    norms: torch.Tensor,
    rotation: int,
    block: int,
    coding: Coding,
    weight: float,
    out: torch.Tensor,
) -> None:
    values = _tables(coding, out.device)[2]
    begin = 4 * len(norms) if coding.head else 0
    for first, number, length, position in sections(len(out), block, coding.width, begin):
        factor = float64_bits(weight * coding.step / length)
        numbers = len(out), block, first, position, wrap_to_int64(rotation), factor
        constants = {"LENGTH": length, "FOLDS": count_folds(length), "WIDTH": coding.width}
        launch(_decode_add, number, payload, norms, values, out, *numbers, **constants)
