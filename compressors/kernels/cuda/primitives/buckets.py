"""Process buckets as tiles: a program works on a few whole buckets, or on a piece of a long bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, power_of_two
from compressors.kernels.cuda.primitives.packing import fill_words, pack_at, pack_words, word_pointer

_TILE = 1024
_LONGEST = 4096
_VECTOR = 16
"""Where counts are multiples of this, threads load and store several elements by one instruction."""


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

    @property
    def warps(self) -> int:
        """The warps of a program: eight elements for each thread."""
        return max(1, self.rows * self.columns // 256)

    def fill_words(self, payload: torch.Tensor, width: int) -> bool:
        """Tell whether `write_codes` and `read_codes` can use whole words for codes of `width` bits."""
        last = self.elements - (self.buckets - 1) * self.bucket
        longer = self.bucket if self.buckets > 1 else 0
        return self.columns * width >= 32 and fill_words(payload, width, last, longer)


def tiling(count: int, bucket: int) -> Tiling:
    """Return the tiles for these buckets; COLS is a multiple of eight."""
    buckets = -(-count // bucket)
    longest = max(1, min(bucket, count))
    columns = max(8, power_of_two(min(longest, _LONGEST)))
    rows = max(1, _TILE // columns)
    across = -(-longest // columns)
    return Tiling(count, bucket, rows, columns, across, -(-buckets // rows) * across, buckets)


def launch_tiles(kernel: Any, tiles: Tiling, tensors: Sequence[torch.Tensor], *numbers: Any, **constants: Any) -> None:
    """Run `kernel` on all tiles; its arguments are the tensors, those that `tile` needs, and the numbers."""
    constants |= {"ROWS": tiles.rows, "COLS": tiles.columns, "ALIGNED": not (tiles.elements | tiles.bucket) % _VECTOR}
    cut = tiles.elements, tiles.bucket, tiles.across
    launch(kernel, tiles.programs, *tensors, *cut, *numbers, num_warps=tiles.warps, **constants)


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
    the codes (`head` for each bucket), the bits of `weight` as float64, and `others`. If the constants have WIDTH, the
    bits of a code, WORDS is added to them.
    """
    tiles, wrong = tiling(len(out), bucket), flags.make(out.device)
    if "WIDTH" in constants:
        constants["WORDS"] = tiles.fill_words(payload, constants["WIDTH"])
    numbers = head * tiles.buckets, float64_bits(weight)
    launch_tiles(kernel, tiles, (payload, out, wrong), *numbers, *others, **constants)
    return not flags.is_refused(wrong)


@triton.jit
def tile(count, bucket, across, ROWS: tl.constexpr, COLS: tl.constexpr, ALIGNED: tl.constexpr) -> tl.tensor:
    """Return the part of a tensor on which this program works.

    It consists of the numbers of the buckets (ROWS,) int64, the positions of the elements in their bucket (COLS,) int64
    and in the tensor (ROWS, COLS) int64, and masks of the elements and of the buckets that exist. If ALIGNED, `count`
    and `bucket` are multiples of 16.
    """
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    if ALIGNED:
        count = tl.multiple_of(count, 16)
        bucket = tl.multiple_of(bucket, 16)
    first = tl.program_id(0) // across  # of int64, divisions take a hundred instructions
    part = tl.program_id(0) - first * across
    number = first.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = part.to(tl.int64) * COLS + tl.arange(0, COLS)
    index = number[:, None] * bucket + inside[None, :]
    exists = (inside[None, :] < bucket) & (index < count)
    return number, inside, index, exists, number * bucket < count


@triton.jit
def word_places(
    number, across, header, count, bucket, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
) -> tl.tensor:
    """Return the numbers of the words with the codes of a tile, counted from the payload's begin, and whether they
    exist: (ROWS * COLS * WIDTH // 32,) each.
    """
    each: tl.constexpr = 32 // WIDTH
    words: tl.constexpr = COLS // each
    part = (tl.program_id(0) % across).to(tl.int64)
    bucket = bucket.to(tl.int64)
    begin = header.to(tl.int64) // 4 + number * (bucket * WIDTH // 32) + part * words
    inside = (part * COLS + each * tl.arange(0, words))[None, :]
    exists = (inside < bucket) & (number[:, None] * bucket + inside < count.to(tl.int64))
    place = begin[:, None] + tl.arange(0, words)[None, :]
    return tl.reshape(place, (ROWS * words,)), tl.reshape(exists, (ROWS * words,))


@triton.jit
def write_codes(
    payload, codes, number, across, header, count, bucket, WIDTH: tl.constexpr, WORDS: tl.constexpr
) -> None:
    """Write the codes (ROWS, COLS) int32 of a tile, which must be 0 if there is no element.

    The codes of every bucket start at a whole byte, after `header` bytes, a multiple of 4. WORDS as from
    `Tiling.fill_words`.
    """
    rows: tl.constexpr = codes.shape[0]
    columns: tl.constexpr = codes.shape[1]
    if WORDS:
        place, real = word_places(number, across, header, count, bucket, WIDTH, rows, columns)
        words = pack_words(tl.reshape(codes, (rows * columns * WIDTH // 32, 32 // WIDTH)), WIDTH)
        tl.store(word_pointer(payload) + place, words, mask=real)
    elif WIDTH == 8:
        inside = ((tl.program_id(0) % across).to(tl.int64) * columns + tl.arange(0, columns))[None, :]
        index = number[:, None] * bucket.to(tl.int64) + inside
        real = (inside < bucket) & (index < count.to(tl.int64))
        tl.store(payload + header + index, codes.to(tl.uint8), mask=real)
    else:
        groups: tl.constexpr = columns // 8
        bucket = bucket.to(tl.int64)
        length = tl.maximum(tl.minimum(count.to(tl.int64) - number * bucket, bucket), 0)
        start = header + number * ((bucket * WIDTH + 7) // 8)
        end = start + (length * WIDTH + 7) // 8
        part = (tl.program_id(0) % across).to(tl.int64) * (groups * WIDTH)
        begin = start[:, None] + (part + WIDTH * tl.arange(0, groups))[None, :]
        begin = tl.reshape(begin, (rows * groups,))
        end = tl.reshape(tl.broadcast_to(end[:, None], (rows, groups)), (rows * groups,))
        pack_at(payload, tl.reshape(codes, (rows * groups, 8)), begin, end, WIDTH)
