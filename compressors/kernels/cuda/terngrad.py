"""TernGrad in Triton; `reference.terngrad` says what is computed."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import float64_bits, is_raised, launch, make_flag, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    NAN,
    add_to,
    bucket_draws,
    canonical,
    divisor_of,
    draw_round_up,
    factor_of,
    norms,
    read_codes,
    read_scales,
)
from compressors.kernels.cuda.sums import bucket_moments

_ROUNDING = 2.0**-40


def scales(x: torch.Tensor, bucket: int, clip: float) -> torch.Tensor:
    bits = norms(x, bucket, False)
    scale = torch.where(bits >= 0x7F800000, NAN.value, bits).view(torch.float32)
    if clip > 0 and len(x):
        plain, _, square = bucket_moments(x, bucket)
        length = torch.full_like(plain, min(bucket, len(x)))
        length[-1] = len(x) - (len(plain) - 1) * bucket
        mean, power = plain / length, square / length
        variance = power - mean * mean
        limit = (clip * variance.clamp(min=0).sqrt()).float()
        limit = torch.where(variance <= power * _ROUNDING, math.inf, limit)
        scale = torch.where(scale.isnan() | (scale < limit), scale, limit)
    return scale


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key"])
def _encode(
    x: tl.tensor,
    own: tl.tensor,
    sent: tl.tensor,
    payload: tl.tensor,
    count: tl.tensor,
    bucket: tl.tensor,
    across: tl.tensor,
    header: tl.tensor,
    key: tl.tensor,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
) -> None:
    """Write the scales `sent` and the codes of the elements, which are clipped to `own`."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS)
    value = tl.load(x + index, mask=exists, other=0.0)
    limit = tl.load(own + number, mask=real, other=0.0)
    scale = canonical(tl.load(sent + number, mask=real, other=0.0).to(tl.int32, bitcast=True))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, scale, real)
    clipped = tl.minimum(tl.abs(value), limit[:, None])
    exact = tl.div_rn(clipped, tl.broadcast_to(divisor_of(scale)[:, None], (ROWS, COLS)))
    exact = tl.where((scale == NAN)[:, None], 0.0, exact)
    level = exact.to(tl.int32)
    level += draw_round_up(exact, level, bucket_draws(key, number, inside, bucket, across, COLS))
    sign = value.to(tl.int32, bitcast=True) >> 31
    codes = tl.where(exists, 1 + ((level ^ sign) - sign), 0)
    write_codes(payload, codes, number, inside, header, count, bucket, 2, 2)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight"])
def _decode_add(
    payload: tl.tensor,
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
    scale, bad = read_scales(payload, number, real)
    code = read_codes(payload, number, inside, exists, header, bucket, 2)
    add_to(out, index, exists, factor_of(scale, weight)[:, None] * (code - 1).to(tl.float32))
    bad += tl.max(tl.max((code > 2).to(tl.int32), axis=1), axis=0)
    tl.store(wrong, 1, mask=bad > 0)


def encode(
    x: torch.Tensor, key: int, bucket: int, own: torch.Tensor, scales: torch.Tensor, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    launch(
        _encode, tiles.programs, x, own, scales, payload, len(x), bucket, tiles.across, 4 * tiles.buckets,
        wrap_to_int64(key),
        ROWS=tiles.rows, COLS=tiles.columns,
    )  # fmt: skip


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    tiles = tiling(len(out), bucket)
    wrong = make_flag(out)
    launch(
        _decode_add, tiles.programs, payload, out, wrong, len(out), bucket, tiles.across, 4 * tiles.buckets,
        float64_bits(weight), ROWS=tiles.rows, COLS=tiles.columns,
    )  # fmt: skip
    return not is_raised(wrong)
