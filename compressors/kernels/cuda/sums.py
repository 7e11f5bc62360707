"""Sums in Triton, over a whole tensor or over each of its buckets; `kernels.reference.sums` defines their order.

A program sums a few chunks, each lane of a chunk from left to right; the totals of a bucket's chunks are
summed by the same rule until one is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch

_CHUNK = tl.constexpr(4096)
CHUNKS = tl.constexpr(8)
"""Chunks that one program sums."""
LANES = tl.constexpr(16)


class Chunks(NamedTuple):
    """The division of elements into buckets of size `bucket` (the last may be shorter), and of buckets into chunks."""

    elements: int
    bucket: int
    buckets: int
    across: int
    """Chunks of a bucket; those behind the end of the last one sum up to zero."""
    steps: int
    """Elements in a lane."""


def chunks_of(count: int, bucket: int) -> Chunks:
    longest = min(bucket, count)
    steps = -(-min(longest, _CHUNK.value) // LANES.value)
    return Chunks(count, bucket, -(-count // bucket), -(-longest // _CHUNK.value), steps)


def launch_chunks(kernel: Any, chunks: Chunks, tensors: tuple[torch.Tensor, ...], *numbers: int) -> None:
    """Run `kernel` on all chunks; its arguments are the tensors, those that `first_places` needs, the steps, and the
    numbers.

    The loop is unrolled by UNROLL steps, so that their loads are in flight together.
    """
    programs = -(-chunks.buckets * chunks.across // CHUNKS.value)
    cut = chunks.elements, chunks.bucket, chunks.across, chunks.steps
    launch(kernel, programs, *tensors, *cut, *numbers, UNROLL=8 if chunks.steps >= 8 else 1)


@triton.jit
def add_halves(lanes) -> tl.tensor:
    """Add the halves of the lanes to each other: (rows, n) -> (rows, n // 2)."""
    return tl.sum(tl.reshape(lanes, (lanes.shape[0], 2, lanes.shape[1] // 2)), axis=1)


@triton.jit
def fold(lanes) -> tl.tensor:
    """Add up the lanes of each chunk: (CHUNKS, LANES) -> (CHUNKS,)."""
    return tl.reshape(add_halves(add_halves(add_halves(add_halves(lanes)))), (CHUNKS,))


@triton.jit
def first_places(count, bucket, across) -> tl.tensor:
    """Return the chunks of this program.

    They are given by their numbers (CHUNKS,) int64, whether they exist, the positions of their first elements (CHUNKS,
    LANES) int64, by lane, and the ends of their buckets (CHUNKS, 1).
    """
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    chunk = tl.program_id(0).to(tl.int64) * CHUNKS + tl.arange(0, CHUNKS)
    begin = chunk // across * bucket
    place = (begin + chunk % across * _CHUNK)[:, None] + tl.arange(0, LANES)[None, :]
    return chunk, begin < count, place, tl.minimum(begin + bucket, count)[:, None]


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps", "total"])
def _moments(x, totals, count, bucket, across, steps, total, UNROLL: tl.constexpr) -> None:
    """Write the totals of x, |x| and x^2 of some of the `total` chunks, (3, total) float64."""
    chunk, exists, place, end = first_places(count, bucket, across)
    plain = tl.zeros((CHUNKS, LANES), tl.float64)
    absolute = tl.zeros((CHUNKS, LANES), tl.float64)
    square = tl.zeros((CHUNKS, LANES), tl.float64)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):  # behind the last step is the end of the bucket
            value = tl.load(x + place, mask=place < end, other=0.0).to(tl.float64)
            plain += value
            absolute += tl.abs(value)
            square += value * value
            place += LANES
    total = total.to(tl.int64)
    tl.store(totals + chunk, fold(plain), mask=exists)
    tl.store(totals + total + chunk, fold(absolute), mask=exists)
    tl.store(totals + 2 * total + chunk, fold(square), mask=exists)


@triton.jit(do_not_specialize=["count", "length", "across", "steps"])
def _again(values, totals, count, length, across, steps, UNROLL: tl.constexpr) -> None:
    """Write the total of every chunk of the rows of `values` (rows, length), each with `count` elements."""
    chunk, exists, place, end = first_places(count, length, across)
    lanes = tl.zeros((CHUNKS, LANES), tl.float64)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            lanes += tl.load(values + place, mask=place < end, other=0.0)
            place += LANES
    tl.store(totals + chunk, fold(lanes), mask=exists)


def combine(totals: torch.Tensor) -> torch.Tensor:
    """Sum every row: (rows, n) float64 -> (rows,); n may be zero."""
    rows, length = totals.shape
    if not length:
        return totals.new_zeros(rows)
    while length > 1:
        chunks = chunks_of(totals.numel(), length)
        shorter = totals.new_empty(rows, chunks.across)
        launch_chunks(_again, chunks, (totals, shorter))
        totals, length = shorter, chunks.across
    return totals[:, 0]


def bucket_moments(x: torch.Tensor, bucket: int) -> torch.Tensor:
    """Return the sums of x, |x| and x^2 of every bucket of `x` (n,), n > 0: (3, buckets) float64.

    This does not wait for the device.
    """
    chunks = chunks_of(len(x), bucket)
    totals = torch.empty(3 * chunks.buckets, chunks.across, dtype=torch.float64, device=x.device)
    launch_chunks(_moments, chunks, (x, totals), totals.numel() // 3)
    return combine(totals).view(3, chunks.buckets)


def moments(x: torch.Tensor) -> tuple[float, float, float]:
    if not len(x):
        return 0.0, 0.0, 0.0
    plain, absolute, square = bucket_moments(x, len(x)).flatten().tolist()
    return plain, absolute, square
