"""Exact means over the workers, for evaluations; a run does not count their traffic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mpi4py import MPI

_PIECE = 1 << 20  # elements summed at once: a whole model in float64 would take twice its memory


def compute_mean(mine: torch.Tensor, comm: MPI.Comm) -> torch.Tensor:
    """Return the mean of a vector (n,) over the workers, with the vector's type and device.

    Sums in float64 and rounds once, so that the mean of equal vectors is that vector.
    """
    from mpi4py import MPI

    mean = torch.empty_like(mine)
    for part, into in zip(mine.split(_PIECE), mean.split(_PIECE), strict=True):
        total = part.to(device="cpu", dtype=torch.float64, copy=True)
        comm.Allreduce(MPI.IN_PLACE, [total.numpy(), MPI.DOUBLE])
        into.copy_(total.div_(comm.size))
    return mean


@contextlib.contextmanager
def replace_by_mean(values: torch.Tensor, comm: MPI.Comm) -> Iterator[None]:
    """Replace a vector (n,) by its mean over the workers within the block, and then restore each worker's vector.

    All workers enter the block together; the mean has the same bits on all of them.
    """
    mine = values.clone()
    values.copy_(compute_mean(mine, comm))
    try:
        yield
    finally:
        values.copy_(mine)
