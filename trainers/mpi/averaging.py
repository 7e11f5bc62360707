"""The mean of what every worker has its own of, exact and of no traffic that a run counts: for evaluations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mpi4py import MPI

_PIECE = 1 << 20  # elements that are summed at once: in float64 a large model would take twice its memory


def compute_mean(mine: torch.Tensor, comm: MPI.Comm) -> torch.Tensor:
    """The mean over the workers of a vector (n,) that each has its own of, in its type and on its device.

    Summed in float64 and rounded once: the mean of vectors that are equal is what they are.
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
    """While this lasts, a vector (n,) is its mean over the workers; then it is each worker's own again.

    The mean is the same on all workers, who enter it at the same time.
    """
    mine = values.clone()
    values.copy_(compute_mean(mine, comm))
    try:
        yield
    finally:
        values.copy_(mine)
