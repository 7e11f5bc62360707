"""Dithering to powers of two in Triton; `reference.dithering` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    add_to,
    bucket_draws,
    canonical,
    divide_by_scales,
    draw_round_up,
    factor_of,
    norms,
    read_codes,
    read_scales,
)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key", "steps"])
def _encode(
    x,
    scales,
    payload,
    count,
    bucket,
    across,
    header,
    key,
    steps,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    value = tl.load(x + index, mask=exists, other=0.0)
    norm = canonical(tl.load(scales + number, mask=real, other=0))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, norm, real)
    finest = ((steps + 126) << 23).to(tl.float32, bitcast=True)  # 2^(steps - 1)
    relative = divide_by_scales(tl.abs(value), norm) * finest
    random = bucket_draws(key, number, inside, bucket, across, COLS)
    power = ((relative.to(tl.int32, bitcast=True) + (random >> 9).to(tl.int32)) >> 23) - 126
    below = tl.where(relative >= 1, 0.0, relative)
    level = tl.where(relative >= 1, power, draw_round_up(below, tl.zeros((ROWS, COLS), tl.int32), random))
    sign = value.to(tl.int32, bitcast=True) >> 31
    codes = tl.where(exists, steps + ((level ^ sign) - sign), 0)
    write_codes(payload, codes, number, across, header, count, bucket, WIDTH, WORDS)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight", "steps"])
def _decode_add(
    payload,
    out,
    wrong,
    count,
    bucket,
    across,
    header,
    weight,
    steps,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    norm, bad = read_scales(payload, number, real)
    level = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS) - steps
    exponent = tl.where(level == 0, 0, tl.minimum(tl.abs(level), steps) + 127 - steps)
    value = (exponent << 23).to(tl.float32, bitcast=True)
    value = tl.where(level < 0, -value, value)
    add_to(out, index, exists, factor_of(norm, weight)[:, None] * value)
    bad += tl.max(tl.max((level > steps).to(tl.int32), axis=1), axis=0)
    tl.store(wrong, 1, mask=bad > 0)


def encode(
    x: torch.Tensor, key: int, steps: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    tensors, numbers = (x, norms(x, bucket, euclidean), payload), (4 * tiles.buckets, wrap_to_int64(key), steps)
    launch_tiles(_encode, tiles, tensors, *numbers, WIDTH=width, WORDS=tiles.fill_words(payload, width))


def decode_add(payload: torch.Tensor, steps: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return decode_tiles(_decode_add, payload, bucket, weight, out, steps, WIDTH=width)
