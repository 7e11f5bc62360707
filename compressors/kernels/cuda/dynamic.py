"""Dynamic tree quantisation in Triton; `reference.dynamic` says what is computed."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels import dynamic_map
from compressors.kernels.cuda.primitives.buckets import tile, tiling
from compressors.kernels.cuda.primitives.launch import float64_bits, is_raised, launch, make_flag
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    MAGNITUDE,
    NAN,
    add_to,
    canonical,
    divisor_of,
    factor_of,
    largest_magnitudes,
    read_scales,
)

_DECADES = tl.constexpr(dynamic_map.DECADES)
_EIGHT_NINTHS = tl.constexpr(dynamic_map.EIGHT_NINTHS)
_ONE = tl.constexpr(dynamic_map.ONE)


@functools.cache
def _decades(device: torch.device) -> torch.Tensor:
    """Return the starts, slopes and parts of the decades, (3, 8) float32; the numbers below all starts have row 0."""
    rows = ((*dynamic_map.STARTS, 0.0), (0.0, *dynamic_map.SLOPES), (0.5, *dynamic_map.PARTS))
    return torch.tensor(rows, dtype=torch.float32, device=device)


@functools.cache
def _values(device: torch.device) -> torch.Tensor:
    return torch.tensor(dynamic_map.VALUES, dtype=torch.float32, device=device)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header"])
def _encode(
    x: tl.tensor,
    norms: tl.tensor,
    decades: tl.tensor,
    payload: tl.tensor,
    count: tl.tensor,
    bucket: tl.tensor,
    across: tl.tensor,
    header: tl.tensor,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    GIVEN: tl.constexpr,
) -> None:
    """Write norms and codes of one tile; the norms, as bits, are those of `norms` where GIVEN."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS)
    value = tl.load(x + index, mask=exists, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    if GIVEN:
        norm = canonical(tl.load(norms + number, mask=real, other=0))
    else:
        norm = canonical(tl.max(bits & MAGNITUDE, axis=1))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, norm, real)
    y = tl.div_rn(tl.abs(value), tl.broadcast_to(divisor_of(norm)[:, None], (ROWS, COLS)))
    y = tl.where((norm == NAN)[:, None], 0.0, y)
    decade = tl.zeros((ROWS, COLS), tl.int32)
    for place in tl.static_range(_DECADES):
        decade += (y > tl.load(decades + place)).to(tl.int32)
    parts = tl.load(decades + 16 + decade)
    exact = y * tl.load(decades + 8 + decade) + parts * _EIGHT_NINTHS
    rank = tl.minimum(exact, 2.0 * parts - 1.0).to(tl.int32) + (y > _ONE).to(tl.int32)
    code = tl.where((bits < 0) & (rank > 0), 128 + tl.minimum(rank, 127), rank)
    tl.store(payload + header + index, code.to(tl.uint8), mask=exists)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight"])
def _decode_add(
    payload: tl.tensor,
    values: tl.tensor,
    out: tl.tensor,
    wrong: tl.tensor,
    count: tl.tensor,
    bucket: tl.tensor,
    across: tl.tensor,
    header: tl.tensor,
    weight: tl.tensor,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS)
    norm, bad = read_scales(payload, number, real)
    code = tl.load(payload + header + index, mask=exists, other=0).to(tl.int32)
    add_to(out, index, exists, factor_of(norm, weight)[:, None] * tl.load(values + code))
    tl.store(wrong, 1, mask=bad > 0)


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    tiles = tiling(len(x), bucket)
    norms = payload if tiles.whole else largest_magnitudes(x, bucket)
    launch(
        _encode, tiles.programs, x, norms, _decades(x.device), payload, len(x), bucket, tiles.across,
        4 * tiles.buckets, ROWS=tiles.rows, COLS=tiles.columns, GIVEN=not tiles.whole,
    )  # fmt: skip


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    tiles = tiling(len(out), bucket)
    wrong = make_flag(out)
    launch(
        _decode_add, tiles.programs, payload, _values(out.device), out, wrong, len(out), bucket, tiles.across,
        4 * tiles.buckets, float64_bits(weight), ROWS=tiles.rows, COLS=tiles.columns,
    )  # fmt: skip
    return not is_raised(wrong)
