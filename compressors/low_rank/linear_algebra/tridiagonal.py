"""Compute selected eigenvectors of a symmetric matrix, in a fraction of the time that all of them take.

LAPACK's solvers, as torch has them, compute all vectors or none. Here the matrix is made tridiagonal
(`kernels.cpu.primitives.householder`), all eigenvalues are found roughly, and the selected ones exactly, with their
vectors.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import torch

from compressors.kernels.cpu.primitives import eigen, householder
from compressors.low_rank.linear_algebra.gram_matrix import row_length

_ENDS = 24
_ROUGH = 22
_EXACT = 34
_NEAR = 1e-9
_TOGETHER = 4
_EPSILON = float(np.finfo(np.float64).eps)


@dataclasses.dataclass(frozen=True)
class Tridiagonal:
    """The tridiagonal form of a symmetric matrix, with the reflections between both.

    `low` and `high` (n,) enclose the eigenvalues, smallest first, in intervals of 2^-22 of the largest.
    """

    reflections: npt.NDArray[np.float32]
    scales: npt.NDArray[np.float64]
    diagonal: npt.NDArray[np.float64]
    beside: npt.NDArray[np.float64]
    pivot: float
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The eigenvalues, smallest first, to 2^-22 of the largest."""
        return 0.5 * (self.low + self.high)

    def vectors(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return orthonormal eigenvectors (len(numbers), n) of the eigenvalues `numbers`; number 0 is the smallest.

        The vector of a number does not depend on the other numbers: all vectors belong to one orthogonal basis, even if
        eigenvalues are equal.
        """
        if not len(numbers):
            return np.empty((0, len(self.diagonal)))
        wanted, where = np.unique(numbers, return_inverse=True)
        return self._ascending(wanted)[where]

    def _ascending(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        members, values, clusters = self._find_neighbours(numbers)
        if np.bincount(clusters, minlength=1).max(initial=0) > _TOGETHER:
            return self._all_vectors()[numbers]
        found = np.empty((len(members), len(self.diagonal)))
        eigen.eigenvectors(self.diagonal, self.beside, _EPSILON * self._size(), members, values, clusters, found)
        found = np.ascontiguousarray(found[np.searchsorted(members, numbers)])
        householder.reflect_back(self.reflections, self.scales, found)
        return found

    def _find_neighbours(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Add to `numbers` those of eigenvalues that are equal up to rounding; return them with values and clusters.

        The clusters number the groups of equal eigenvalues.
        """
        count = len(self.diagonal)
        around = numbers[:, None] + np.arange(-_TOGETHER, _TOGETHER + 1)
        members = np.unique(around[(around >= 0) & (around < count)])
        low, high = self.low[members].copy(), self.high[members].copy()
        eigen.bisect(self.diagonal, self.beside**2, self.pivot, members, _EXACT, low, high)
        values = 0.5 * (low + high)
        apart = (np.diff(values) > _NEAR * self._size()) | (np.diff(members) > 1)
        clusters = np.concatenate([[0], np.cumsum(apart)]).astype(np.int64)
        wanted = np.isin(clusters, clusters[np.isin(members, numbers)])
        return members[wanted], values[wanted], clusters[wanted]

    def _size(self) -> float:
        return float(max(abs(self.low[0]), abs(self.high[-1])))

    def _all_vectors(self) -> npt.NDArray[np.float64]:
        """Return all eigenvectors, for matrices with many equal eigenvalues."""
        beside = torch.from_numpy(self.beside)
        _, vectors = torch.linalg.eigh(torch.diag(torch.from_numpy(self.diagonal)) + torch.diag(beside, -1))
        found = np.ascontiguousarray(vectors.numpy().T)
        householder.reflect_back(self.reflections, self.scales, found)
        return found


def _room(matrix: torch.Tensor, *, overwrite: bool) -> npt.NDArray[np.float32]:
    """Return a work matrix (n, `row_length(n)`) that begins with `matrix` (n, n).

    It uses the memory of `matrix` if `overwrite` is true and that memory has the right layout.
    """
    count = len(matrix)
    width = row_length(count)
    bytes_needed = 4 * (matrix.storage_offset() + count * width)
    if overwrite and matrix.stride() == (width, 1) and matrix.untyped_storage().nbytes() >= bytes_needed:
        return matrix.as_strided((count, width), (width, 1)).numpy()
    work = np.empty((count, width), np.float32)
    work[:, :count] = matrix.numpy()
    return work


def make_tridiagonal(matrix: torch.Tensor, *, overwrite: bool = False) -> Tridiagonal | None:
    """Return the tridiagonal form of `matrix` (n, n) float32, whose lower triangle is read; None if it is not finite.

    With `overwrite`, the content of `matrix` is undefined afterwards.
    """
    count = len(matrix)
    work = _room(matrix, overwrite=overwrite)
    diagonal, beside, scales = np.zeros(count), np.zeros(count - 1), np.zeros(count)
    householder.tridiagonalise(work, diagonal, beside, scales)
    squares = beside**2
    radius = np.abs(beside)
    reach = np.abs(diagonal) + np.append(radius, 0.0) + np.append(0.0, radius)
    bound = float(reach.max())
    if not np.isfinite(bound):
        return None
    pivot = max(_EPSILON**2 * bound, float(np.finfo(np.float64).tiny))
    # First both ends, then a grid between them, then bisection in its cells.
    low, high = np.full(2, -bound * (1.0 + 1e-6)), np.full(2, bound * (1.0 + 1e-6))
    eigen.bisect(diagonal, squares, pivot, np.array([0, count - 1]), _ENDS, low, high)
    grid = np.linspace(low[0], high[1], count + 1)
    counts = np.empty(count + 1, np.int64)
    eigen.count_below(diagonal, squares, pivot, grid, counts)
    counts[0], counts[-1] = 0, count
    cell = np.searchsorted(np.maximum.accumulate(counts), np.arange(count), side="right")
    low, high = grid[cell - 1], grid[cell]
    rounds = max(0, _ROUGH - int(np.log2(count)))
    eigen.bisect(diagonal, squares, pivot, np.arange(count), rounds, low, high)
    return Tridiagonal(work, scales, diagonal, beside, pivot, low, high)
