"""ATOMO on the elements of a tensor in Triton; `reference.atomo` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import MAGNITUDE
from compressors.kernels.cuda.sums import CHUNKS, LANES, chunks_of, combine, first_places, fold, launch_chunks
from compressors.kernels.reference.atomo import read_flags, write_flags

__all__ = ["draw_kept", "read_flags", "split_at", "write_flags"]

_BLOCK = tl.constexpr(4096)
_TILE = 1024


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps", "threshold"])
def _split(x, totals, found, largest, count, bucket, across, steps, threshold, UNROLL: tl.constexpr) -> None:
    """Write by chunk the sums of the magnitudes below the threshold; count all others, and find the largest below."""
    chunk, exists, place, end = first_places(count, bucket, across)
    lanes = tl.zeros((CHUNKS, LANES), tl.float64)
    above = tl.zeros((CHUNKS, LANES), tl.int32)
    most = tl.zeros((CHUNKS, LANES), tl.int32)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            sizes = tl.load(x + place, mask=place < end, other=0.0).to(tl.int32, bitcast=True) & MAGNITUDE
            below = tl.where(sizes < threshold, sizes, 0)
            lanes += below.to(tl.float32, bitcast=True).to(tl.float64)
            above += ((sizes >= threshold) & (place < end)).to(tl.int32)
            most = tl.maximum(most, below)
            place += LANES
    tl.store(totals + chunk, fold(lanes), mask=exists)
    tl.atomic_add(found, tl.sum(tl.sum(above, axis=1), axis=0).to(tl.int64), sem="relaxed")
    tl.atomic_max(largest, tl.max(tl.max(most, axis=1), axis=0), sem="relaxed")


def split_at(x: torch.Tensor, threshold: int) -> tuple[int, float, int]:
    if not len(x):
        return 0, 0.0, 0
    chunks = chunks_of(len(x), len(x))
    totals = torch.empty(1, chunks.across, dtype=torch.float64, device=x.device)
    found = torch.zeros(1, dtype=torch.int64, device=x.device)
    largest = torch.zeros(1, dtype=torch.int32, device=x.device)
    launch_chunks(_split, chunks, (x, totals, found, largest), threshold)
    above, below, most = torch.cat([found.double(), combine(totals), largest.double()]).tolist()
    return int(above), below, int(most)


@triton.jit(do_not_specialize=["count", "key", "scale", "threshold"])
def _draw(x, kept, count, key, scale, threshold, TILE: tl.constexpr) -> None:
    """Write a flag for each element, whether it is kept; `scale` is the bits of a float64."""
    first = tl.program_id(0).to(tl.int64) * TILE
    index = first + tl.arange(0, TILE)
    value = tl.load(x + index, mask=index < count, other=0.0)
    whole = tl.zeros((TILE,), tl.float32) + scale.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    p = tl.div_rn(tl.abs(value), whole)
    p = tl.where(p < 1.0, p, tl.where(p >= 1.0, 1.0, 0.0))  # NaN becomes zero
    cut = tl.minimum(p * 2147483648.0, 2147483520.0).to(tl.int32)
    random = draw(stream_bits(key, (first // _BLOCK).to(tl.uint64)), (index % _BLOCK).to(tl.uint32))
    certain = (value.to(tl.int32, bitcast=True) & MAGNITUDE) >= threshold
    tl.store(kept + index, (((random >> 1).to(tl.int32) < cut) | certain).to(tl.uint8), mask=index < count)


def draw_kept(x: torch.Tensor, key: int, scale: float, threshold: int, expected: float) -> torch.Tensor:
    kept = torch.empty(len(x), dtype=torch.uint8, device=x.device)
    programs = -(-len(x) // _TILE)
    launch(_draw, programs, x, kept, len(x), wrap_to_int64(key), float64_bits(scale), threshold, TILE=_TILE)
    return kept.nonzero().flatten()
