"""Sums in Triton, over a whole tensor or over each of its buckets; `kernels.reference.sums` defines their order.

A program sums a few chunks, each lane of a chunk from left to right; the totals of a bucket's chunks are
summed by the same rule until one is left.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch

CHUNK = 4096
LANES = 16
_CHUNKS = 8


class Chunks(NamedTuple):
    """How buckets are cut into chunks; what a kernel needs besides its tensors."""

    buckets: int
    across: int
    """Chunks of a bucket; those behind the end of the last one sum up to zero."""
    steps: int
    """Elements in a lane."""
    unroll: int
    """Steps that are taken together, so that as many loads are under way."""

    @property
    def programs(self) -> int:
        return -(-self.buckets * self.across // _CHUNKS)


def chunks_of(count: int, bucket: int) -> Chunks:
    """Return the chunks of `count` elements in buckets of `bucket`, the last one shorter."""
    longest = min(bucket, count)
    steps = -(-min(longest, CHUNK) // LANES)
    return Chunks(-(-count // bucket), -(-longest // CHUNK), steps, 8 if steps >= 8 else 1)


@triton.jit
def add_halves(lanes: tl.tensor, LANES: tl.constexpr) -> tl.tensor:
    """Add the halves of the lanes to each other: (rows, LANES) -> (rows, LANES // 2)."""
    return tl.sum(tl.reshape(lanes, (lanes.shape[0], 2, LANES // 2)), axis=1)


@triton.jit
def fold(lanes: tl.tensor, CHUNKS: tl.constexpr) -> tl.tensor:
    """Add up the lanes of each chunk: (CHUNKS, 16) -> (CHUNKS,)."""
    return tl.reshape(add_halves(add_halves(add_halves(add_halves(lanes, 16), 8), 4), 2), (CHUNKS,))


@triton.jit
def first_places(
    count: tl.tensor, bucket: tl.tensor, across: tl.tensor, CHUNK: tl.constexpr, CHUNKS: tl.constexpr
) -> tl.tensor:
    """Return the chunks of this program (CHUNKS,) int64, whether they exist, the places of their first elements
    (CHUNKS, 16) int64, by lane, and where their buckets end (CHUNKS, 1)."""
    chunk = tl.program_id(0).to(tl.int64) * CHUNKS + tl.arange(0, CHUNKS)
    begin = chunk // across * bucket
    place = (begin + chunk % across * CHUNK)[:, None] + tl.arange(0, 16)[None, :]
    return chunk, begin < count, place, tl.minimum(begin + bucket, count)[:, None]


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps", "total"])
def _moments(
    x: tl.tensor,
    totals: tl.tensor,
    count: tl.tensor,
    bucket: tl.tensor,
    across: tl.tensor,
    steps: tl.tensor,
    total: tl.tensor,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Write the totals of x, |x| and x^2 of some chunks, of which there are `total`: `totals` is (3, total) float64."""
    chunk, exists, place, end = first_places(count.to(tl.int64), bucket.to(tl.int64), across, CHUNK, CHUNKS)
    plain = tl.zeros((CHUNKS, 16), tl.float64)
    absolute = tl.zeros((CHUNKS, 16), tl.float64)
    square = tl.zeros((CHUNKS, 16), tl.float64)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):  # behind the last step is the end of the bucket
            value = tl.load(x + place, mask=place < end, other=0.0).to(tl.float64)
            plain += value
            absolute += tl.abs(value)
            square += value * value
            place += 16
    total = total.to(tl.int64)
    tl.store(totals + chunk, fold(plain, CHUNKS), mask=exists)
    tl.store(totals + total + chunk, fold(absolute, CHUNKS), mask=exists)
    tl.store(totals + 2 * total + chunk, fold(square, CHUNKS), mask=exists)


@triton.jit(do_not_specialize=["count", "length", "across", "steps"])
def _again(
    values: tl.tensor,
    totals: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    across: tl.tensor,
    steps: tl.tensor,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Write the totals of the chunks of every row of `values` (rows, length), which has `count` elements."""
    chunk, exists, place, end = first_places(count.to(tl.int64), length.to(tl.int64), across, CHUNK, CHUNKS)
    lanes = tl.zeros((CHUNKS, 16), tl.float64)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            lanes += tl.load(values + place, mask=place < end, other=0.0)
            place += 16
    tl.store(totals + chunk, fold(lanes, CHUNKS), mask=exists)


def combine(totals: torch.Tensor) -> torch.Tensor:
    """Sum every row: (rows, n) float64 -> (rows,); n may be zero."""
    rows, length = totals.shape
    if not length:
        return totals.new_zeros(rows)
    while length > 1:
        chunks = chunks_of(totals.numel(), length)
        shorter = totals.new_empty(rows, chunks.across)
        launch(
            _again, chunks.programs, totals, shorter, totals.numel(), length, chunks.across, chunks.steps,
            CHUNK=CHUNK, CHUNKS=_CHUNKS, UNROLL=chunks.unroll,
        )  # fmt: skip
        totals, length = shorter, chunks.across
    return totals[:, 0]


def bucket_moments(x: torch.Tensor, bucket: int) -> torch.Tensor:
    """Return the sums of x, |x| and x^2 of every bucket of `x` (n,), n > 0, without waiting for the device:
    (3, buckets) float64."""
    chunks = chunks_of(len(x), bucket)
    totals = torch.empty(3 * chunks.buckets, chunks.across, dtype=torch.float64, device=x.device)
    launch(
        _moments, chunks.programs, x, totals, len(x), bucket, chunks.across, chunks.steps, totals.numel() // 3,
        CHUNK=CHUNK, CHUNKS=_CHUNKS, UNROLL=chunks.unroll,
    )  # fmt: skip
    return combine(totals).view(3, chunks.buckets)


def moments(x: torch.Tensor) -> tuple[float, float, float]:
    if not len(x):
        return 0.0, 0.0, 0.0
    plain, absolute, square = bucket_moments(x, len(x)).flatten().tolist()
    return plain, absolute, square
