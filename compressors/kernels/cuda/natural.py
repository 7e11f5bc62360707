"""Natural compression in Triton; `reference.natural` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    INFINITY,
    NAN,
    add_to,
    bucket_draws,
    divide_by_scales,
    factor_of,
    largest_magnitudes,
    read_codes,
    read_scales,
)

_FRACTION = tl.constexpr(0x007FFFFF)
_LARGEST_BITS = tl.constexpr(0x7F7FFFFF)


@triton.jit
def _next_power(bits) -> tl.tensor:
    """Return, as bits, the smallest power of two (from 2^-126 on) that is at least this magnitude.

    2^128 is replaced by the largest float32.
    """
    power = (tl.minimum(bits, _LARGEST_BITS) + _FRACTION) & INFINITY
    return tl.where(bits >= INFINITY, NAN, tl.minimum(power, _LARGEST_BITS))


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key"])
def _encode(
    x,
    largest,
    payload,
    count,
    bucket,
    across,
    header,
    key,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    value = tl.load(x + index, mask=exists, other=0.0)
    scale = _next_power(tl.load(largest + number, mask=real, other=0))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, scale, real)
    relative = divide_by_scales(tl.abs(value), scale)
    random = bucket_draws(key, number, inside, bucket, across, COLS)
    codes = (relative.to(tl.int32, bitcast=True) + (random >> 9).to(tl.int32)) >> 23
    codes |= (value.to(tl.int32, bitcast=True) >> 24) & 0x80
    codes = tl.where((scale == NAN)[:, None], 0, codes)
    write_codes(payload, tl.where(exists, codes, 0), number, across, header, count, bucket, 8, WORDS)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight"])
def _decode_add(
    payload,
    out,
    wrong,
    count,
    bucket,
    across,
    header,
    weight,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    scale, bad = read_scales(payload, number, real)
    power = ((scale & _FRACTION) == 0) | (scale == _LARGEST_BITS) | (scale == NAN)
    code = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS)
    value = (((code & 0x7F) << 23) | ((code & 0x80) << 24)).to(tl.float32, bitcast=True)
    add_to(out, index, exists, factor_of(scale, weight)[:, None] * value)
    bad += tl.max(tl.where(power, 0, 1), axis=0)
    tl.store(wrong, 1, mask=bad > 0)


def encode(x: torch.Tensor, key: int, bucket: int, payload: torch.Tensor) -> None:
    tiles = tiling(len(x), bucket)
    tensors = x, largest_magnitudes(x, bucket), payload
    launch_tiles(_encode, tiles, tensors, 4 * tiles.buckets, wrap_to_int64(key), WORDS=tiles.fill_words(payload, 8))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return decode_tiles(_decode_add, payload, bucket, weight, out, WIDTH=8)
