"""Buckets as tiles: a program works on a few whole buckets, or on a piece of one that is long."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import power_of_two
from compressors.kernels.cuda.primitives.packing import pack_at

_TILE = 1024
_LONGEST = 4096


class Tiling(NamedTuple):
    """How `count` elements in buckets are cut into tiles of ROWS buckets and COLS elements of each."""

    rows: int
    columns: int
    across: int
    """Tiles that one bucket takes."""
    programs: int
    buckets: int

    @property
    def whole(self) -> bool:
        """Whether a tile holds whole buckets."""
        return self.across == 1


def tiling(count: int, bucket: int) -> Tiling:
    """Return the tiles for buckets of `bucket` elements, the last one shorter. COLS is a multiple of eight."""
    buckets = -(-count // bucket)
    longest = max(1, min(bucket, count))
    columns = max(8, power_of_two(longest)) if longest <= _LONGEST else _TILE
    rows = max(1, _TILE // columns)
    across = -(-longest // columns)
    return Tiling(rows, columns, across, -(-buckets // rows) * across, buckets)


@triton.jit
def tile(count: tl.tensor, bucket: tl.tensor, across: tl.tensor, ROWS: tl.constexpr, COLS: tl.constexpr) -> tl.tensor:
    """Return what this program works on: the buckets (ROWS,) int64, the places of the elements in their bucket
    (COLS,) int64 and in the tensor (ROWS, COLS) int64, which of the elements exist, and which of the buckets."""
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    number = program // across * ROWS + tl.arange(0, ROWS)
    inside = program % across * COLS + tl.arange(0, COLS)
    index = number[:, None] * bucket + inside[None, :]
    exists = (inside[None, :] < bucket) & (index < count)
    return number, inside, index, exists, number * bucket < count


@triton.jit
def write_codes(
    payload: tl.tensor,
    codes: tl.tensor,
    number: tl.tensor,
    inside: tl.tensor,
    header: tl.tensor,
    count: tl.tensor,
    bucket: tl.tensor,
    WIDTH: tl.constexpr,
    BYTES: tl.constexpr,
) -> None:
    """Write the codes (ROWS, COLS) int32 of a tile, which are 0 where there is no element. The codes of every
    bucket start at a whole byte behind `header` bytes; BYTES as for `pack`."""
    rows: tl.constexpr = codes.shape[0]
    groups: tl.constexpr = codes.shape[1] // 8
    bucket = bucket.to(tl.int64)
    length = tl.maximum(tl.minimum(count.to(tl.int64) - number * bucket, bucket), 0)
    start = header + number * ((bucket * WIDTH + 7) // 8)
    end = start + (length * WIDTH + 7) // 8
    begin = start[:, None] + (tl.min(tl.reshape(inside, (groups, 8)), axis=1) // 8 * WIDTH)[None, :]
    begin = tl.reshape(begin, (rows * groups,))
    end = tl.reshape(tl.broadcast_to(end[:, None], (rows, groups)), (rows * groups,))
    pack_at(payload, tl.reshape(codes, (rows * groups, 8)), begin, end, WIDTH, BYTES)
