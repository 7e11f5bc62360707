"""1-bit quantisation in Triton; `reference.onebit` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import launch
from compressors.kernels.cuda.primitives.packing import load_words, store_words
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, NAN, add_to, factor_of, read_codes
from compressors.kernels.cuda.sums import CHUNKS, LANES, chunks_of, combine, first_places, fold, launch_chunks

_BLOCK = 128


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


@triton.jit(do_not_specialize=["count", "bucket", "buckets"])
def _write_means(totals, negative, payload, count, bucket, buckets, BLOCK: tl.constexpr) -> None:
    """Write for every bucket the mean of the elements without the sign bit, and of those with it; NaN for both if
    the sums `totals` (2, buckets) are not finite. `negative` (buckets,) int64 is how many have the sign bit.
    """
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    buckets = buckets.to(tl.int64)
    real = number < buckets
    above = tl.load(totals + number, mask=real, other=0.0)
    below = tl.load(totals + buckets + number, mask=real, other=0.0)
    signs = tl.load(negative + number, mask=real, other=0)
    length = tl.minimum(count.to(tl.int64) - number * bucket.to(tl.int64), bucket.to(tl.int64))
    positive = (above / tl.maximum(length - signs, 1).to(tl.float64)).to(tl.float32).to(tl.int32, bitcast=True)
    minus = (below / tl.maximum(signs, 1).to(tl.float64)).to(tl.float32).to(tl.int32, bitcast=True)
    finite = (above < float("inf")) & (below > float("-inf"))  # a sum of NaN is neither
    store_words(payload, 2 * number, tl.where(finite, positive, NAN), real)
    store_words(payload, 2 * number + 1, tl.where(finite, minus, NAN), real)


def _encode_means(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    chunks = chunks_of(len(x), bucket)
    totals = torch.empty(2 * chunks.buckets, chunks.across, dtype=torch.float64, device=x.device)
    negative = torch.empty(chunks.buckets, chunks.across, dtype=torch.int64, device=x.device)
    launch_chunks(_halves, chunks, (x, totals, negative), negative.numel())
    tensors = combine(totals), negative if chunks.across == 1 else negative.sum(1), payload
    numbers = len(x), bucket, chunks.buckets
    launch(_write_means, -(-chunks.buckets // _BLOCK), *tensors, *numbers, BLOCK=_BLOCK)


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
    _encode_means(x, bucket, payload)
    launch_tiles(_encode, tiles, (x, payload), 8 * tiles.buckets, WORDS=tiles.fill_words(payload, 1))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return decode_tiles(_decode_add, payload, bucket, weight, out, head=8, WIDTH=1)
