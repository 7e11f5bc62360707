"""Quantile buckets in Triton; `reference.sketch` is the same in plain torch.

The histogram of cells is counted with atomic additions, cut into buckets on the processor (`kernels.quantiles`),
and the bucket of every element is looked up in a table of the cells.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.cuda.primitives.launch import launch
from compressors.kernels.cuda.primitives.packing import pack_at, unpack_at
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, NAN, add_to
from compressors.kernels.quantiles import CELLS, Cut, buckets

_BLOCK = 1024
_GROUPS = 128
# A count and a sum of 16-bit numbers share 64 bits as long as fewer than 2^23 elements are counted.
_RUN = (1 << 23) - 1
_COUNT = 40


@triton.jit
def _cells(x, index, mask) -> tl.tensor:
    """Return the upper 16 bits of elements, which name their cells, and the lower 16 bits: both int64."""
    bits = tl.load(x + index, mask=mask, other=0.0).to(tl.int32, bitcast=True).to(tl.int64)
    return (bits >> 16) & 0xFFFF, bits & 0xFFFF


@triton.jit(do_not_specialize=["first", "last"])
def _histogram(x, both, first, last, COUNT: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Add the elements from `first` to `last` - 1 to the counts and sums of their cells."""
    index = first.to(tl.int64) + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    high, low = _cells(x, index, index < last)
    one = tl.full((BLOCK,), 1, tl.int64)
    tl.atomic_add(both + high, (one << COUNT) | low, mask=index < last, sem="relaxed")


def _count_cells(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count the elements of each cell, and add up their lower 16 bits: (CELLS,) int64 each."""
    counts, lows = torch.zeros(2, CELLS, dtype=torch.int64, device=x.device)
    for first in range(0, len(x), _RUN):
        last = min(first + _RUN, len(x))
        both = torch.zeros_like(counts)
        launch(_histogram, -(-(last - first) // _BLOCK), x, both, first, last, COUNT=_COUNT, BLOCK=_BLOCK)
        counts += both >> _COUNT
        lows += both & ((1 << _COUNT) - 1)
    return counts, lows


@triton.jit(do_not_specialize=["count", "header", "size"])
def _write_codes(x, table, payload, count, header, size, WIDTH: tl.constexpr, GROUPS: tl.constexpr) -> None:
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    index = 8 * group[:, None] + tl.arange(0, 8)[None, :]
    high, _ = _cells(x, index, index < count)
    code = tl.load(table + high, mask=index < count, other=0).to(tl.int32)
    pack_at(payload, code, header + group * WIDTH, tl.zeros((GROUPS,), tl.int64) + size, WIDTH)


def encode(x: torch.Tensor, number: int, payload: torch.Tensor, cut: Cut = buckets) -> None:
    if not number:
        return
    counts, lows = _count_cells(x)
    table, means = cut(counts.cpu().numpy(), lows.cpu().numpy(), number)
    write_floats(torch.from_numpy(means).to(x.device), payload[: 4 * number])
    width = (number - 1).bit_length()
    launch(
        _write_codes, -(-len(x) // (8 * _GROUPS)), x, torch.from_numpy(table).to(x.device), payload, len(x),
        4 * number, len(payload), WIDTH=width, GROUPS=_GROUPS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["count", "number"])
def _decode_add(payload, values, out, wrong, count, number, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Add to `out` the value of each element's bucket; `values` has those of `number` buckets."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = index < count
    code = unpack_at(payload, 4 * number.to(tl.int64), index, exists, WIDTH)
    add_to(out, index, exists & (code < number), tl.load(values + code, mask=code < number, other=0.0))
    tl.store(wrong, 1, mask=tl.max((code >= number).to(tl.int32), axis=0) > 0)


def decode_add(payload: torch.Tensor, number: int, weight: float, out: torch.Tensor) -> bool:
    if not number:
        return True
    means = read_floats(payload[: 4 * number])
    bits = means.view(torch.int32)
    wrong = flags.make(out.device).copy_((((bits & MAGNITUDE.value) >= INFINITY.value) & (bits != NAN.value)).any())
    values = (means.double() * weight).float()
    launch(
        _decode_add, -(-len(out) // _BLOCK), payload, values, out, wrong, len(out), number,
        WIDTH=(number - 1).bit_length(), BLOCK=_BLOCK,
    )  # fmt: skip
    return not flags.is_refused(wrong)
