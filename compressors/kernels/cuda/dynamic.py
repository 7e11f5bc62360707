"""Dynamic tree quantisation in Triton; `reference.dynamic` says what is computed."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels import dynamic_map
from compressors.kernels.cuda import byte_levels
from compressors.kernels.cuda.primitives.buckets import launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    MAGNITUDE,
    canonical,
    divide_by_scales,
    largest_magnitudes,
)

_DECADES = tl.constexpr(dynamic_map.DECADES)
_EIGHT_NINTHS = tl.constexpr(dynamic_map.EIGHT_NINTHS)
_ONE = tl.constexpr(dynamic_map.ONE)


@functools.cache
def _decades(device: torch.device) -> torch.Tensor:
    """Return the starts, slopes and parts of the decades of levels, (3, 8) float32; row 0 is for smaller numbers."""
    rows = ((*dynamic_map.STARTS, 0.0), (0.0, *dynamic_map.SLOPES), (0.5, *dynamic_map.PARTS))
    return torch.tensor(rows, dtype=torch.float32, device=device)


@functools.cache
def _values(device: torch.device) -> torch.Tensor:
    return torch.tensor(dynamic_map.VALUES, dtype=torch.float32, device=device)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header"])
def _encode(
    x,
    norms,
    decades,
    payload,
    count,
    bucket,
    across,
    header,
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
    y = divide_by_scales(tl.abs(value), norm)
    decade = tl.zeros((ROWS, COLS), tl.int32)
    for place in tl.static_range(_DECADES):
        decade += (y > tl.load(decades + place)).to(tl.int32)
    parts = tl.load(decades + 16 + decade)
    exact = y * tl.load(decades + 8 + decade) + parts * _EIGHT_NINTHS
    rank = tl.minimum(exact, 2.0 * parts - 1.0).to(tl.int32) + (y > _ONE).to(tl.int32)
    code = tl.where((bits < 0) & (rank > 0), 128 + tl.minimum(rank, 127), rank)
    write_codes(payload, tl.where(exists, code, 0), number, across, header, count, bucket, 8, WORDS)


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    tiles = tiling(len(x), bucket)
    norms = payload if tiles.whole else largest_magnitudes(x, bucket)
    tensors = x, norms, _decades(x.device), payload
    launch_tiles(_encode, tiles, tensors, 4 * tiles.buckets, WORDS=tiles.fill_words(payload, 8), GIVEN=not tiles.whole)


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return byte_levels.decode_add(payload, _values(out.device), 127, bucket, weight, out)
