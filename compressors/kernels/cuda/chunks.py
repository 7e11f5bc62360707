"""Select the largest elements of every block of a matrix in Triton; `reference.chunks` says what is selected.

A program holds a block in registers. It finds the k-th largest magnitude bit by bit, by counting the magnitudes that
are at least as large, and writes the places of the larger ones and of the first equal ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch, power_of_two
from compressors.kernels.reference.chunks import locate

__all__ = ["locate", "select"]

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)


@triton.jit(do_not_specialize=["columns", "height", "width", "k"])
def _select(x, found, columns, height, width, k, BLOCK: tl.constexpr) -> None:
    number = tl.program_id(0).to(tl.int64)
    columns, width, k = columns.to(tl.int64), width.to(tl.int64), k.to(tl.int64)
    size = height.to(tl.int64) * width
    inside = tl.arange(0, BLOCK).to(tl.int64)
    across = columns // width
    row = number // across * height + inside // width
    place = row * columns + number % across * width + inside % width
    bits = tl.load(x + place, mask=inside < size, other=0.0).to(tl.int32, bitcast=True)
    sizes = tl.where(inside < size, bits & _MAGNITUDE, -1)
    least = tl.zeros((), tl.int32)
    for step in range(31):
        tried = least | (1 << (30 - step))
        least = tl.where(tl.sum((sizes >= tried).to(tl.int32), axis=0) >= k, tried, least)
    above = (sizes > least).to(tl.int32)
    same = (sizes == least).to(tl.int32)
    same_before = tl.cumsum(same, axis=0) - same
    ties = k - tl.sum(above, axis=0)
    kept = (above > 0) | ((same > 0) & (same_before < ties))
    rank = tl.cumsum(kept.to(tl.int32), axis=0) - 1
    tl.store(found + number * k + rank, number * size + inside, mask=kept)


def select(x: torch.Tensor, columns: int, height: int, width: int, k: int) -> torch.Tensor:
    size = height * width
    found = torch.empty(x.numel() // size * k, dtype=torch.int64, device=x.device)
    launch(_select, x.numel() // size, x, found, columns, height, width, k, BLOCK=power_of_two(size))
    return found
