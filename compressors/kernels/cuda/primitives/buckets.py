"""Process buckets as tiles: a program works on a few whole buckets, or on a piece of a long bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits, is_raised, launch, make_flag, power_of_two
from compressors.kernels.cuda.primitives.packing import pack_at

_TILE = 1024
_LONGEST = 4096


class Tiling(NamedTuple):
    """A division of elements, in buckets of size `bucket` (the last may be shorter), into tiles of ROWS buckets x COLS
    elements.
    """

    elements: int
    bucket: int
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
    """Return the tiles for these buckets; COLS is a multiple of eight."""
    buckets = -(-count // bucket)
    longest = max(1, min(bucket, count))
    columns = max(8, power_of_two(longest)) if longest <= _LONGEST else _TILE
    rows = max(1, _TILE // columns)
    across = -(-longest // columns)
    return Tiling(count, bucket, rows, columns, across, -(-buckets // rows) * across, buckets)


def launch_tiles(kernel: Any, tiles: Tiling, tensors: Sequence[torch.Tensor], *numbers: Any, **constants: Any) -> None:
    """Run `kernel` on all tiles; its arguments are the tensors, those that `tile` needs, and the numbers."""
    constants |= {"ROWS": tiles.rows, "COLS": tiles.columns}
    launch(kernel, tiles.programs, *tensors, tiles.elements, tiles.bucket, tiles.across, *numbers, **constants)


def decode_tiles(
    kernel: Any,
    payload: torch.Tensor,
    bucket: int,
    weight: float,
    out: torch.Tensor,
    *others: Any,
    head: int = 4,
    **constants: Any,
) -> bool:
    """Run a decoder on all tiles of `out`; return False if it finds bytes that no encoder can have written.

    The kernel's arguments are `payload`, `out`, a flag to raise, those that `tile` needs, the number of bytes before
    the codes (`head` for each bucket), the bits of `weight` as float64, and `others`.
    """
    tiles, wrong = tiling(len(out), bucket), make_flag(out)
    numbers = head * tiles.buckets, float64_bits(weight)
    launch_tiles(kernel, tiles, (payload, out, wrong), *numbers, *others, **constants)
    return not is_raised(wrong)


@triton.jit
def tile(count, bucket, across, ROWS: tl.constexpr, COLS: tl.constexpr) -> tl.tensor:
    """Return the part of a tensor on which this program works.

    It consists of the numbers of the buckets (ROWS,) int64, the positions of the elements in their bucket (COLS,) int64
    and in the tensor (ROWS, COLS) int64, and masks of the elements and of the buckets that exist.
    """
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
    payload, codes, number, inside, header, count, bucket, WIDTH: tl.constexpr, BYTES: tl.constexpr
) -> None:
    """Write the codes (ROWS, COLS) int32 of a tile, which must be 0 if there is no element.

    The codes of every bucket start at a whole byte, after `header` bytes; BYTES as for `pack`.
    """
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
