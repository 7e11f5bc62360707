"""TernGrad in Triton; `reference.terngrad` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda import qsgd
from compressors.kernels.cuda.primitives.buckets import launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.scales import (
    INFINITY,
    NAN,
    bucket_draws,
    canonical,
    divide_by_scales,
    draw_round_up,
    norms,
)
from compressors.kernels.cuda.sums import bucket_moments

_ROUNDING = tl.constexpr(2.0**-40)
_BLOCK = 128


@triton.jit(do_not_specialize=["count", "bucket", "buckets", "clip"])
def _clip_scales(largest, sums, scales, count, bucket, buckets, clip, BLOCK: tl.constexpr) -> None:
    """Write the scales of buckets, as `reference.terngrad.scales` defines them.

    `largest` has the largest magnitudes, as bits, and `sums` (3, buckets) the moments; `clip` is the bits of a float64.
    """
    buckets = buckets.to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = number < buckets
    bits = tl.load(largest + number, mask=real, other=0)
    scale = tl.where(bits >= INFINITY, NAN, bits).to(tl.float32, bitcast=True)
    length = tl.minimum(count.to(tl.int64) - number * bucket.to(tl.int64), bucket.to(tl.int64)).to(tl.float64)
    mean = tl.load(sums + number, mask=real, other=0.0) / length
    power = tl.load(sums + 2 * buckets + number, mask=real, other=0.0) / length
    variance = power - mean * mean
    limit = (clip.to(tl.int64).to(tl.float64, bitcast=True) * tl.sqrt(tl.maximum(variance, 0.0))).to(tl.float32)
    limit = tl.where(variance <= power * _ROUNDING, float("inf"), limit)
    tl.store(scales + number, tl.where((scale != scale) | (scale < limit), scale, limit), mask=real)


def scales(x: torch.Tensor, bucket: int, clip: float) -> torch.Tensor:
    bits = norms(x, bucket, False)
    if not (clip > 0 and len(x)):
        return torch.where(bits >= INFINITY.value, NAN.value, bits).view(torch.float32)
    found = torch.empty(len(bits), dtype=torch.float32, device=x.device)
    tensors, numbers = (bits, bucket_moments(x, bucket), found), (len(x), bucket, len(bits), float64_bits(clip))
    launch(_clip_scales, -(-len(bits) // _BLOCK), *tensors, *numbers, BLOCK=_BLOCK)
    return found


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key"])
def _encode(
    x,
    own,
    sent,
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
    """Write the scales `sent`, and the codes of the elements after clipping to `own`."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
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
    write_codes(payload, codes, number, across, header, count, bucket, 2, WORDS)


def encode(
    x: torch.Tensor, key: int, bucket: int, own: torch.Tensor, scales: torch.Tensor, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    numbers = 4 * tiles.buckets, wrap_to_int64(key)
    launch_tiles(_encode, tiles, (x, own, scales, payload), *numbers, WORDS=tiles.fill_words(payload, 2))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return qsgd.decode_add(payload, 1, 2, bucket, weight, out)
