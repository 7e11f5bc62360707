"""TernGrad in Triton; `reference.terngrad` says what is computed."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda import qsgd
from compressors.kernels.cuda.primitives.buckets import launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import NAN, bucket_draws, canonical, divide_by_scales, draw_round_up, norms
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
def _encode(x, own, sent, payload, count, bucket, across, header, key, ROWS: tl.constexpr, COLS: tl.constexpr) -> None:
    """Write the scales `sent`, and the codes of the elements after clipping to `own`."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS)
    value = tl.load(x + index, mask=exists, other=0.0)
    limit = tl.load(own + number, mask=real, other=0.0)
    scale = canonical(tl.load(sent + number, mask=real, other=0.0).to(tl.int32, bitcast=True))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, scale, real)
    exact = divide_by_scales(tl.minimum(tl.abs(value), limit[:, None]), scale)
    level = exact.to(tl.int32)
    level += draw_round_up(exact, level, bucket_draws(key, number, inside, bucket, across, COLS))
    sign = value.to(tl.int32, bitcast=True) >> 31
    codes = tl.where(exists, 1 + ((level ^ sign) - sign), 0)
    write_codes(payload, codes, number, inside, header, count, bucket, 2, 2)


def encode(
    x: torch.Tensor, key: int, bucket: int, own: torch.Tensor, scales: torch.Tensor, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    launch_tiles(_encode, tiles, (x, own, scales, payload), 4 * tiles.buckets, wrap_to_int64(key))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return qsgd.decode_add(payload, 1, 2, bucket, weight, out)
