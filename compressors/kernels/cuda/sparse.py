"""Read and write the index part of sparse payloads in Triton; `reference.sparse` says what is computed.

Each code is written to its bits independently, with atomic ors of 32-bit words, which are copied to the payload in the
end. `primitives.rice_codes` reads them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.cuda.primitives.bitmaps import list_bits
from compressors.kernels.cuda.primitives.launch import float64_bits, launch
from compressors.kernels.cuda.primitives.packing import load_words, pack_codes, store_words, unpack_at
from compressors.kernels.cuda.primitives.rice_codes import read_positions

_PARAMETERS = 32
_GAP_BITS = 64
_BLOCK = 512
_PROGRAMS = 512
_LOOPS = 64  # of a program that counts bits: at most 255 for its bytes, and 127 blocks for their sums


@triton.jit
def _gaps(indices, place, mask) -> tl.tensor:
    """Return the gaps: the number of positions between each kept one and the kept one before."""
    before = tl.load(indices + place - 1, mask=mask & (place > 0), other=-1)
    return tl.load(indices + place, mask=mask, other=0) - before - 1


@triton.jit(do_not_specialize=["count", "loops"])
def _count_bits(indices, counts, count, loops, BLOCK: tl.constexpr) -> None:
    """Add the number of gaps whose bit b is set to `counts[b]`, for all 64 bits.

    Each lane counts in bytes: every 8th bit of a gap is added to a byte of its own.
    """
    place = tl.program_id(0).to(tl.int64) * loops * BLOCK + tl.arange(0, BLOCK)
    bit = tl.arange(0, 8)
    bytes_ = tl.zeros((8, BLOCK), tl.int64)
    for _ in range(loops):
        gap = tl.where(place < count, _gaps(indices, place, place < count), 0)
        bytes_ += (gap[None, :] >> bit.to(tl.int64)[:, None]) & 0x0101010101010101
        place += BLOCK
    for odd in tl.static_range(2):
        fields = tl.sum((bytes_ >> (8 * odd)) & 0x00FF00FF00FF00FF, axis=1)
        for field in tl.static_range(4):
            found = (fields >> (16 * field)) & 0xFFFF
            tl.atomic_add(counts + 16 * field + 8 * odd + bit, found, mask=found > 0, sem="relaxed")


def rice(indices: torch.Tensor) -> tuple[int, int]:
    count = len(indices)
    counts = torch.zeros(_GAP_BITS, dtype=torch.int64, device=indices.device)
    loops = min(max(1, count // (_BLOCK * _PROGRAMS)), _LOOPS)
    launch(_count_bits, -(-count // (_BLOCK * loops)), indices, counts, count, loops, BLOCK=_BLOCK)
    high, bits = 0, []
    for parameter, ones in reversed(list(enumerate(counts.tolist()))):
        high = 2 * high + int(ones)  # the sum of gap >> parameter
        bits.append(count * (1 + parameter) + high)
    bits = bits[: -_PARAMETERS - 1 : -1]
    return min(range(_PARAMETERS), key=bits.__getitem__), min(bits)


@triton.jit(do_not_specialize=["count"])
def _write_int32(indices, payload, count, BLOCK: tl.constexpr) -> None:
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + place, mask=place < count, other=0)
    store_words(payload, place, index.to(tl.int32), place < count)


def write_int32(indices: torch.Tensor, payload: torch.Tensor) -> None:
    launch(_write_int32, -(-len(indices) // _BLOCK), indices, payload, len(indices), BLOCK=_BLOCK)


@triton.jit(do_not_specialize=["count", "n"])
def _read_int32(payload, indices, wrong, count, n, BLOCK: tl.constexpr) -> None:
    """Read positions; set `wrong` if they do not ascend or are not below n. What is written is below n."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    index = load_words(payload, place, mask).to(tl.int64) & 0xFFFFFFFF
    before = load_words(payload, place - 1, mask & (place > 0)).to(tl.int64) & 0xFFFFFFFF
    bad = mask & ((index >= n) | ((place > 0) & (index <= before)))
    tl.store(indices + place, tl.minimum(index, n - 1), mask=mask)
    tl.store(wrong, 1, mask=tl.max(bad.to(tl.int32), axis=0) > 0)


def read_int32(payload: torch.Tensor, n: int) -> torch.Tensor | None:
    count = len(payload) // 4
    indices = torch.empty(count, dtype=torch.int64, device=payload.device)
    wrong = flags.make(payload.device)
    launch(_read_int32, -(-count // _BLOCK), payload, indices, wrong, count, n, BLOCK=_BLOCK)
    return None if flags.is_refused(wrong) else indices


@triton.jit(do_not_specialize=["count"])
def _write_bitmap(indices, words, count, BLOCK: tl.constexpr) -> None:
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + place, mask=place < count, other=0)
    tl.atomic_or(
        words + (index >> 5),
        tl.full((BLOCK,), 1, tl.int32) << (index & 31).to(tl.int32),
        mask=place < count,
        sem="relaxed",
    )


def write_bitmap(indices: torch.Tensor, payload: torch.Tensor) -> None:
    words = torch.zeros(-(-len(payload) // 4), dtype=torch.int32, device=payload.device)
    launch(_write_bitmap, -(-len(indices) // _BLOCK), indices, words, len(indices), BLOCK=_BLOCK)
    payload.copy_(words.view(torch.uint8)[: len(payload)])


def read_bitmap(payload: torch.Tensor, n: int, count: int) -> torch.Tensor | None:
    indices = torch.zeros(count, dtype=torch.int64, device=payload.device)
    wrong = flags.make(payload.device)
    list_bits(payload, n, indices, wrong)
    return None if flags.is_refused(wrong) else indices


@triton.jit(do_not_specialize=["count", "parameter"])
def _code_lengths(indices, lengths, count, parameter, BLOCK: tl.constexpr) -> None:
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gap = _gaps(indices, place, place < count)
    tl.store(lengths + place, (gap >> parameter) + 1 + parameter, mask=place < count)


@triton.jit(do_not_specialize=["count", "parameter"])
def _write_delta(indices, ends, words, count, parameter, BLOCK: tl.constexpr) -> None:
    """Write the 1 and the low bits of every code, which ends before bit `ends`; `words` are zero, as are the bits
    before the 1.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    gap = _gaps(indices, place, mask)
    one = tl.full((BLOCK,), 1, tl.int64)
    field = ((gap & ((one << parameter) - 1)) << 1) | 1
    begin = tl.load(ends + place, mask=mask, other=0) - parameter - 1
    shifted = field << (begin & 31)
    high = (shifted >> 32).to(tl.int32)
    tl.atomic_or(words + (begin >> 5), shifted.to(tl.int32), mask=mask, sem="relaxed")
    tl.atomic_or(words + (begin >> 5) + 1, high, mask=mask & (high != 0), sem="relaxed")


def write_delta(indices: torch.Tensor, parameter: int, payload: torch.Tensor) -> None:
    count = len(indices)
    ends = torch.empty(count, dtype=torch.int64, device=indices.device)
    launch(_code_lengths, -(-count // _BLOCK), indices, ends, count, parameter, BLOCK=_BLOCK)
    ends = ends.cumsum(0)
    words = torch.zeros(-(-len(payload) // 4), dtype=torch.int32, device=payload.device)
    launch(_write_delta, -(-count // _BLOCK), indices, ends, words, count, parameter, BLOCK=_BLOCK)
    payload.copy_(words.view(torch.uint8)[: len(payload)])


def read_delta(
    payload: torch.Tensor, n: int, count: int, parameter: int, is_whole: bool = False
) -> tuple[torch.Tensor | None, int]:
    return read_positions(payload, n, count, parameter, is_whole)


@triton.jit(do_not_specialize=["count", "weight"])
def _add_at(indices, values, out, count, weight, BLOCK: tl.constexpr) -> None:
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + place, mask=place < count, other=0)
    value = tl.load(values + place, mask=place < count, other=0.0)
    factor = weight.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    total = tl.load(out + index, mask=place < count, other=0.0) + value * factor
    tl.store(out + index, total, mask=place < count)


def add_at(indices: torch.Tensor, values: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    bits = float64_bits(weight)
    launch(_add_at, -(-len(indices) // _BLOCK), indices, values, out, len(indices), bits, BLOCK=_BLOCK)


def write_packed(indices: torch.Tensor, elements: int, width: int, payload: torch.Tensor) -> None:
    payload.copy_(pack_codes((indices % elements).to(torch.int32), width))


@triton.jit(do_not_specialize=["count", "elements", "kept"])
def _read_packed(payload, indices, wrong, count, elements, kept, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Read the positions of all blocks; set `wrong` if no encoder can have written them. All lie in their blocks."""
    count = count.to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    code = unpack_at(payload, 0, place, mask, WIDTH)
    follows = mask & (place % kept > 0)
    before = unpack_at(payload, 0, place - 1, follows, WIDTH)
    bad = mask & ((code >= elements) | (follows & (code <= before)))
    last = count * WIDTH - 1
    padding = (tl.load(payload + (last >> 3)).to(tl.int32) >> (last & 7).to(tl.int32)) >> 1
    tl.store(indices + place, place // kept * elements + tl.minimum(code, elements - 1), mask=mask)
    tl.store(wrong, 1, mask=(tl.max(bad.to(tl.int32), axis=0) > 0) | (padding > 0))


def read_packed(payload: torch.Tensor, number: int, elements: int, kept: int, width: int) -> torch.Tensor | None:
    count = number * kept
    indices = torch.empty(count, dtype=torch.int64, device=payload.device)
    wrong = flags.make(payload.device)
    launch(
        _read_packed, -(-count // _BLOCK), payload, indices, wrong, count, elements, kept, WIDTH=width, BLOCK=_BLOCK
    )  # fmt: skip
    return None if flags.is_refused(wrong) else indices
