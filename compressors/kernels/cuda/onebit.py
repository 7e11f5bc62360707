"""1-bit quantisation in Triton; `reference.onebit` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.buffers import write_floats
from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.packing import load_words
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, NAN, add_to, factor_of, read_codes
from compressors.kernels.cuda.sums import CHUNKS, LANES, chunks_of, combine, first_places, fold, launch_chunks


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps", "total"])
def _halves(x, totals, negative, count, bucket, across, steps, total, UNROLL: tl.constexpr) -> None:
    """Write for some of the `total` chunks the sums of the positive and of the other elements, (2, total) float64.

    Write also how many elements have the sign bit, (total,) int64.
    """
    chunk, exists, place, end = first_places(count, bucket, across)
    above = tl.zeros((CHUNKS, LANES), tl.float64)
    below = tl.zeros((CHUNKS, LANES), tl.float64)
    signs = tl.zeros((CHUNKS, LANES), tl.int32)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            value = tl.load(x + place, mask=place < end, other=0.0)
            above += tl.where(value > 0, value, 0.0).to(tl.float64)
            below += tl.where(value > 0, 0.0, value).to(tl.float64)
            signs += (value.to(tl.int32, bitcast=True) < 0).to(tl.int32)
            place += LANES
    tl.store(totals + chunk, fold(above), mask=exists)
    tl.store(totals + total.to(tl.int64) + chunk, fold(below), mask=exists)
    tl.store(negative + chunk, tl.sum(signs, axis=1).to(tl.int64), mask=exists)


def _means(x: torch.Tensor, bucket: int) -> torch.Tensor:
    """Return, per bucket, the mean of the elements without the sign bit and of those with it: (buckets, 2) float32."""
    chunks = chunks_of(len(x), bucket)
    totals = torch.empty(2 * chunks.buckets, chunks.across, dtype=torch.float64, device=x.device)
    negative = torch.zeros(chunks.buckets, chunks.across, dtype=torch.int64, device=x.device)
    launch_chunks(_halves, chunks, (x, totals, negative), negative.numel())
    above, below = combine(totals).view(2, -1)
    count = negative.sum(1)
    length = torch.full_like(count, min(bucket, len(x)))
    length[-1] = len(x) - (len(length) - 1) * bucket
    means = torch.stack([above / (length - count).clamp(min=1), below / count.clamp(min=1)], 1).float()
    bad = ~(above.isfinite() & below.isfinite())
    return torch.where(bad[:, None], NAN.value, means.view(torch.int32)).view(torch.float32)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header"])
def _encode(
    x,
    payload,
    count,
    bucket,
    across,
    header,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Write the sign bits of one tile."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    bits = tl.load(x + index, mask=exists, other=0.0).to(tl.int32, bitcast=True)
    write_codes(payload, (bits >> 31) & 1, number, across, header, count, bucket, 1, WORDS)


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
    positive = load_words(payload, 2 * number, real)
    negative = load_words(payload, 2 * number + 1, real)
    numbers = (positive >= 0) & (positive < INFINITY) & (negative <= 0) & ((negative & MAGNITUDE) < INFINITY)
    good = numbers | ((positive == NAN) & (negative == NAN))
    sign = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS)
    value = tl.where(sign == 1, factor_of(negative, weight)[:, None], factor_of(positive, weight)[:, None])
    add_to(out, index, exists, value)
    tl.store(wrong, 1, mask=tl.max(tl.where(good, 0, 1), axis=0) > 0)


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    if not len(x):
        return
    tiles = tiling(len(x), bucket)
    write_floats(_means(x, bucket), payload[: 8 * tiles.buckets])
    launch_tiles(_encode, tiles, (x, payload), 8 * tiles.buckets, WORDS=tiles.fill_words(payload, 1))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return decode_tiles(_decode_add, payload, bucket, weight, out, head=8, WIDTH=1)
