"""List the set bits of a bitmap in order, in Triton: counts by tile, their running sum, and a pass that writes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch

_TILE = 4096


@triton.jit
def _load_bits(bitmap, index, n, INVERTED: tl.constexpr) -> tl.tensor:
    """Return the bits `index` as int32, or their opposites; 0 from bit `n` on."""
    byte = tl.load(bitmap + (index >> 3), mask=index < n, other=0).to(tl.int32)
    bit = (byte >> (index & 7).to(tl.int32)) & 1
    return tl.where(index < n, 1 - bit, 0) if INVERTED else tl.where(index < n, bit, 0)


@triton.jit(do_not_specialize=["n"])
def _count_set(bitmap, counts, n, INVERTED: tl.constexpr, TILE: tl.constexpr) -> None:
    tile = tl.program_id(0).to(tl.int64)
    bits = _load_bits(bitmap, tile * TILE + tl.arange(0, TILE), n, INVERTED)
    tl.store(counts + tile, tl.sum(bits, axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["n", "count"])
def _list_set(bitmap, running, indices, wrong, n, count, INVERTED: tl.constexpr, TILE: tl.constexpr) -> None:
    """Write the numbers of the set bits; set `wrong` if they are not `count`, or if a bit from `n` on is set.

    `running` has the running sums of the tiles' counts, each including its own tile.
    """
    tile = tl.program_id(0).to(tl.int64)
    index = tile * TILE + tl.arange(0, TILE)
    bits = _load_bits(bitmap, index, n, INVERTED)
    place = tl.load(running + tile) - tl.sum(bits, axis=0) + tl.cumsum(bits, axis=0) - bits
    tl.store(indices + place, index.to(indices.dtype.element_ty), mask=(bits > 0) & (place < count))
    last = n.to(tl.int64) - 1
    padding = (tl.load(bitmap + (last >> 3)).to(tl.int32) >> (last & 7).to(tl.int32)) >> 1
    is_last = tile == tl.num_programs(0) - 1
    tl.store(wrong, 1, mask=is_last & ((tl.load(running + tile) != count) | (padding > 0)))


def list_bits(
    bitmap: torch.Tensor, n: int, indices: torch.Tensor, wrong: torch.Tensor, *, inverted: bool = False
) -> None:
    """Write the numbers of the first `n` bits of `bitmap` (uint8) that are set, or are not if `inverted`, to `indices`.

    Set the flag `wrong` if they are not as many as `indices` has elements, or if another bit is set.
    """
    tiles = -(-n // _TILE)
    counts = torch.empty(tiles, dtype=torch.int64, device=bitmap.device)
    launch(_count_set, tiles, bitmap, counts, n, INVERTED=inverted, TILE=_TILE)
    running = counts.cumsum(0)
    launch(_list_set, tiles, bitmap, running, indices, wrong, n, len(indices), INVERTED=inverted, TILE=_TILE)
