"""Random subsets on a GPU; `reference.randomk` says what is computed.

The subset is what the first draws hit, as many draws as are needed for `wanted` different numbers. As many draws as
numbers are missing are needed in any case: they are made, their numbers are marked in a bitmap of n bits, and those
that are new are counted. Then as many are drawn as are still missing, and so on, until one program does the rest. The
counts stay on the GPU; the host only guesses them, for the number of programs. In the end the bitmap is listed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.bitmaps import list_bits
from compressors.kernels.cuda.primitives.launch import launch, wrap_to_int64
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.selection import is_finite
from compressors.kernels.reference.randomk import choose_first

CHUNK = 1024
_TILE = 1024
_FEW = 4096
"""So many draws are left to one program."""
_SPARSEST = 1 << 16
"""In a bitmap with more bits for each wanted number, these are not looked for: draws are sorted."""


@triton.jit
def _number(key, index, n, LARGE: tl.constexpr, CHUNK: tl.constexpr) -> tl.tensor:
    """Return draw number `index` (int64) from [0, n)."""
    chunk = (index // CHUNK).to(tl.uint64)
    place = (index % CHUNK).to(tl.uint32)
    high = draw(stream_bits(key, 2 * chunk), place).to(tl.int64)
    low = draw(stream_bits(key, 2 * chunk + 1), place).to(tl.int64)
    if LARGE:
        uniform = ((high << 21) | (low >> 11)).to(tl.float64) * 1.1102230246251565e-16  # 2^-53
        number = tl.minimum((uniform * n.to(tl.float64)).to(tl.int64), n - 1)
    else:
        number = (high * n + ((low * n) >> 32)) >> 32
    return number


@triton.jit(do_not_specialize=["key", "n"])
def _draw_numbers(numbers, key, n, LARGE: tl.constexpr, CHUNK: tl.constexpr) -> None:
    """Write one chunk of random numbers from [0, n)."""
    index = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    tl.store(numbers + index, _number(key, index, n, LARGE, CHUNK))


@triton.jit
def _mark(words, index, mask, key, n, LARGE: tl.constexpr, CHUNK: tl.constexpr) -> tl.tensor:
    """Set the bits of the numbers of draws, and return how many of these were not set: int64."""
    number = _number(key, index, n, LARGE, CHUNK)
    bit = tl.full(index.shape, 1, tl.int32) << (number & 31).to(tl.int32)
    before = tl.atomic_or(words + (number >> 5), bit, mask=mask, sem="relaxed")
    return tl.sum((mask & ((before & bit) == 0)).to(tl.int32), axis=0).to(tl.int64)


@triton.jit
def _find_missing(found, wanted, step) -> tl.tensor:
    """Return how many numbers are missing after some steps, and how many draws these took, all int64."""
    missing = wanted.to(tl.int64)
    drawn = tl.zeros((), tl.int64)
    for before in range(step):
        drawn += missing
        missing -= tl.load(found + before)
    return missing, drawn


@triton.jit(do_not_specialize=["key", "n", "wanted", "step"])
def _draw_missing(
    words, found, key, n, wanted, step, LARGE: tl.constexpr, CHUNK: tl.constexpr, TILE: tl.constexpr
) -> None:
    """Make as many draws as numbers are missing after `step` steps, and add how many were new to `found[step]`."""
    missing, drawn = _find_missing(found, wanted, step)
    new = tl.zeros((), tl.int64)
    first = tl.program_id(0).to(tl.int64) * TILE
    while first < missing:
        index = first + tl.arange(0, TILE)
        new += _mark(words, drawn + index, index < missing, key, n, LARGE, CHUNK)
        first += tl.num_programs(0).to(tl.int64) * TILE
    tl.atomic_add(found + step, new, sem="relaxed")


@triton.jit(do_not_specialize=["key", "n", "wanted", "step"])
def _draw_rest(
    words, found, key, n, wanted, step, LARGE: tl.constexpr, CHUNK: tl.constexpr, TILE: tl.constexpr
) -> None:
    """Draw until no number is missing, in one program."""
    missing, drawn = _find_missing(found, wanted, step)
    index = tl.arange(0, TILE).to(tl.int64)
    while missing > 0:
        new = _mark(words, drawn + index, index < missing, key, n, LARGE, CHUNK)
        drawn += tl.minimum(missing, TILE)
        missing -= new


def _numbers(key: int, n: int, chunks: int, device: torch.device) -> torch.Tensor:
    numbers = torch.empty(chunks * CHUNK, dtype=torch.int64, device=device)
    launch(_draw_numbers, chunks, numbers, wrap_to_int64(key), n, LARGE=n >= 2**31, CHUNK=CHUNK)
    return numbers


def _guess_missing(n: int, wanted: int) -> Iterator[int]:
    """Yield how many numbers are missing at each step, about, as long as these are not few."""
    missing = wanted
    while missing > _FEW:
        yield missing
        hit = -(n - wanted + missing) * math.expm1(-missing / n)
        missing -= max(1, int(hit))


def subset(key: int, n: int, k: int, device: torch.device) -> torch.Tensor:
    wanted = min(k, n - k)
    if n > _SPARSEST * wanted:
        return choose_first(functools.partial(_numbers, key, n), n, k, device)
    guesses = list(_guess_missing(n, wanted))
    cells = -(-n // 128) * 2
    room = torch.zeros(cells + len(guesses) + 1, dtype=torch.int64, device=device)
    words, found = room[:cells].view(torch.int32), room[cells:]
    numbers = wrap_to_int64(key), n, wanted
    constants = {"LARGE": n >= 2**31, "CHUNK": CHUNK, "TILE": _TILE}
    for step, missing in enumerate(guesses):
        launch(_draw_missing, -(-missing // _TILE), words, found, *numbers, step, **constants)
    launch(_draw_rest, 1, words, found, *numbers, len(guesses), **constants)
    indices = torch.empty(k, dtype=torch.int32 if n < 2**31 else torch.int64, device=device)
    list_bits(words.view(torch.uint8), n, indices, found[-1:], inverted=wanted != k)
    return indices


def take(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> bool:
    torch.index_select(x, 0, indices, out=values)
    return is_finite(x)
