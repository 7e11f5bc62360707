"""Read and write the index part of sparse payloads in Triton; `reference.sparse` says what is computed.

Each code is written to its bits independently, with atomic ors of 32-bit words, which are copied to the payload in the
end. `primitives.rice_codes` reads them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits, is_raised, launch, make_flag
from compressors.kernels.cuda.primitives.packing import load_words, store_words
from compressors.kernels.cuda.primitives.rice_codes import read_positions
from compressors.kernels.reference.sparse import read_bitmap, read_packed, write_packed

__all__ = [
    "add_at",
    "read_bitmap",
    "read_delta",
    "read_int32",
    "read_packed",
    "rice",
    "write_bitmap",
    "write_delta",
    "write_int32",
    "write_packed",
]

_PARAMETERS = 32
_BLOCK = 512


@triton.jit
def _gaps(indices, place, mask) -> tl.tensor:
    """Return the gaps: the number of positions between each kept one and the kept one before."""
    before = tl.load(indices + place - 1, mask=mask & (place > 0), other=-1)
    return tl.load(indices + place, mask=mask, other=0) - before - 1


@triton.jit(do_not_specialize=["count"])
def _rice(indices, sums, count, PARAMETERS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Add up gap >> r over all gaps, for every r below PARAMETERS."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gap = tl.where(place < count, _gaps(indices, place, place < count), 0)
    for parameter in range(PARAMETERS):
        tl.atomic_add(sums + parameter, tl.sum(gap >> parameter, axis=0), sem="relaxed")


def rice(indices: torch.Tensor) -> tuple[int, int]:
    count = len(indices)
    sums = torch.zeros(_PARAMETERS, dtype=torch.int64, device=indices.device)
    launch(_rice, -(-count // _BLOCK), indices, sums, count, PARAMETERS=_PARAMETERS, BLOCK=_BLOCK)
    bits = [count * (1 + parameter) + int(high) for parameter, high in enumerate(sums.tolist())]
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
    """Read positions; set `wrong` if they do not ascend or are not below n."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    index = load_words(payload, place, mask).to(tl.int64) & 0xFFFFFFFF
    before = load_words(payload, place - 1, mask & (place > 0)).to(tl.int64) & 0xFFFFFFFF
    bad = mask & ((index >= n) | ((place > 0) & (index <= before)))
    tl.store(indices + place, index, mask=mask)
    tl.store(wrong, 1, mask=tl.max(bad.to(tl.int32), axis=0) > 0)


def read_int32(payload: torch.Tensor, n: int) -> torch.Tensor | None:
    count = len(payload) // 4
    indices = torch.empty(count, dtype=torch.int64, device=payload.device)
    wrong = make_flag(payload)
    launch(_read_int32, -(-count // _BLOCK), payload, indices, wrong, count, n, BLOCK=_BLOCK)
    return None if is_raised(wrong) else indices


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


def read_delta(payload: torch.Tensor, n: int, count: int, parameter: int) -> tuple[torch.Tensor | None, int]:
    return read_positions(payload, n, count, parameter)


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
