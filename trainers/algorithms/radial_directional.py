"""Radial-directional averaging: the mean length of the workers' changes, along the mean of their directions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch

from compressors.kernels import norms
from trainers.gradients.flat import Unit
from trainers.mpi.averaging import compute_mean
from trainers.mpi.message_sizes import allreduce_bytes

if TYPE_CHECKING:
    from mpi4py import MPI


class RadialDirectional:
    """Averages lengths and directions of units apart (Decoupled DiLoCo, arXiv 2604.21428, 2026).

    The changes of W workers that are nearly orthogonal have a mean that is shorter by sqrt(W). Here the mean keeps the
    workers' mean length. The changes of embeddings are averaged as they are.

    Args:
        embeddings: names of the units with the tables of embeddings.
    """

    def __init__(self, comm: MPI.Comm, embeddings: Collection[str]) -> None:
        self._comm, self._embeddings = comm, embeddings

    def take_lengths(self, units: Sequence[Unit]) -> torch.Tensor:
        """Divide the units' gradients by their l2 norms; return the norms' means over the workers, (units,).

        All workers call this. The norm of embeddings counts as 1.
        """
        lengths = torch.tensor(
            [1.0 if unit.name in self._embeddings else math.sqrt(norms.squares(unit.gradient)) for unit in units]
        )
        for unit, length in zip(units, lengths.tolist(), strict=True):
            if length:
                unit.gradient.div_(length)
        return compute_mean(lengths, self._comm)

    def count_bytes(self, units: Sequence[Unit]) -> tuple[float, float]:
        """Return the bytes of this worker's norms, and those that it sends for their mean."""
        return 8.0 * len(units), allreduce_bytes(len(units), 8, self._comm.size)

    def give_lengths(self, units: Sequence[Unit], lengths: torch.Tensor) -> None:
        """Scale the mean directions, which are the units' gradients, to these lengths."""
        for unit, length in zip(units, lengths.tolist(), strict=True):
            norm = 1.0 if unit.name in self._embeddings else math.sqrt(norms.squares(unit.gradient))
            if norm:
                unit.gradient.mul_(length / norm)
