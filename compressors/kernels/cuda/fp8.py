"""8-bit floating point in Triton; `reference.fp8` says what is computed."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda import byte_levels
from compressors.kernels.cuda.primitives.buckets import launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    MAGNITUDE,
    bucket_draws,
    canonical,
    divide_by_scales,
    draw_round_up,
    largest_magnitudes,
)
from compressors.kernels.fp8_formats import FORMATS

_HALFWAY = tl.constexpr(12582912.0)
"""1.5 * 2^23: float32 has no fractions there, so adding it rounds to the nearest, of two to the even."""


@functools.cache
def _values(name: str, device: torch.device) -> torch.Tensor:
    return torch.tensor(FORMATS[name].list_values(), dtype=torch.float32, device=device)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key"])
def _encode(
    x,
    norms,
    payload,
    count,
    bucket,
    across,
    header,
    key,
    LARGEST: tl.constexpr,
    SMALLEST: tl.constexpr,
    GRID: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
    GIVEN: tl.constexpr,
) -> None:
    """Write norms and codes of one tile; if GIVEN, `norms` has the norms as bits, else they are computed."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    value = tl.load(x + index, mask=exists, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    if GIVEN:
        norm = canonical(tl.load(norms + number, mask=real, other=0))
    else:
        norm = canonical(tl.max(bits & MAGNITUDE, axis=1))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, norm, real)
    y = divide_by_scales(tl.abs(value), norm) * LARGEST
    own = y.to(tl.int32, bitcast=True)
    exact = tl.minimum(y * GRID, 256.0)
    if STOCHASTIC:
        random = bucket_draws(key, number, inside, bucket, across, COLS)
        up = (random >> (32 - SHIFT)).to(tl.int32) < (own & ((1 << SHIFT) - 1))
        high = (own >> SHIFT) + up.to(tl.int32) - OFFSET
        low = exact.to(tl.int32)
        low += draw_round_up(exact, low, random)
    else:
        high = ((own + ((1 << (SHIFT - 1)) - 1) + ((own >> SHIFT) & 1)) >> SHIFT) - OFFSET
        low = ((exact + _HALFWAY) - _HALFWAY).to(tl.int32)
    rank = tl.where(y < SMALLEST, low, high)
    code = tl.where((bits < 0) & (rank > 0), 128 + rank, rank)
    write_codes(payload, tl.where(exists, code, 0), number, across, header, count, bucket, 8, WORDS)


def encode(x: torch.Tensor, key: int, name: str, bucket: int, stochastic: bool, payload: torch.Tensor) -> None:
    form, tiles = FORMATS[name], tiling(len(x), bucket)
    norms = payload if tiles.whole else largest_magnitudes(x, bucket)
    launch_tiles(
        _encode,
        tiles,
        (x, norms, payload),
        4 * tiles.buckets,
        wrap_to_int64(key),
        LARGEST=form.largest,
        SMALLEST=form.smallest,
        GRID=form.grid,
        SHIFT=form.shift,
        OFFSET=form.offset,
        STOCHASTIC=stochastic,
        WORDS=tiles.fill_words(payload, 8),
        GIVEN=not tiles.whole,
    )


def decode_add(payload: torch.Tensor, name: str, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return byte_levels.decode_add(payload, _values(name, out.device), FORMATS[name].top, bucket, weight, out)
