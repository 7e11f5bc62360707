"""The mixing matrices of a topology: the weights with which workers average parameters."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

_LONG = 16
"""Matrices up to which a period's product is computed. That of more may have eigenvalues too small for float64."""
_PERIODS = 10
"""Periods over which the rate of longer ones is measured, after as many that do not count."""


@dataclasses.dataclass(frozen=True, eq=False)
class Mixing:
    """The mixing matrices W of a topology: in a step, x_i becomes sum_j W[i, j] x_j.

    Args:
        matrices: (n, n) each, used in turn: step s (from 1) uses the one with index (s - 1) modulo their number. Rows
            are receivers, columns senders. Every column sums to 1, so that the sum over the workers is conserved.

    Raises:
        ValueError: a weight is negative or NaN, or a column does not sum to 1.
    """

    matrices: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        for matrix in self.matrices:
            matrix.setflags(write=False)
            if not np.isfinite(matrix).all() or (matrix < 0).any():
                raise ValueError("a mixing matrix has a weight that is negative or no number")
            if not np.allclose(matrix.sum(axis=0), 1.0, rtol=0, atol=1e-12):
                raise ValueError("a mixing matrix has a column that does not sum to 1")

    @property
    def workers(self) -> int:
        return len(self.matrices[0])

    @property
    def period(self) -> int:
        """The number of steps after which the matrices repeat; 1 if W is the same in every step."""
        return len(self.matrices)

    @functools.cached_property
    def symmetric(self) -> bool:
        """Whether links have no direction: W[i, j] = W[j, i]."""
        return all(np.array_equal(matrix, matrix.T) for matrix in self.matrices)

    @functools.cached_property
    def doubly_stochastic(self) -> bool:
        """Whether rows sum to 1 too, so that mixing equal parameters changes nothing."""
        return all(np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-12) for matrix in self.matrices)

    def get_matrix(self, step: int) -> np.ndarray:
        """Return W in step `step` (from 1)."""
        return self.matrices[(step - 1) % self.period]

    def damp(self, stepsize: float) -> Mixing:
        """Return the matrices I + gamma (W - I) of every step; gamma is the consensus stepsize, above 0 up to 1."""
        identity = np.eye(self.workers)
        return Mixing(tuple(identity + stepsize * (matrix - identity) for matrix in self.matrices))

    def get_own_weight(self, worker: int, step: int) -> float:
        """Return the weight of a worker's own parameters."""
        return float(self.get_matrix(step)[worker, worker])

    def find_sources(self, worker: int, step: int) -> dict[int, float]:
        """Return the workers from which a worker receives, in the order of their numbers, with their weights."""
        row = self.get_matrix(step)[worker]
        return {int(other): float(row[other]) for other in np.flatnonzero(row) if other != worker}

    def find_targets(self, worker: int, step: int) -> list[int]:
        """Return the workers to which a worker sends, in the order of their numbers."""
        column = self.get_matrix(step)[:, worker]
        return [int(other) for other in np.flatnonzero(column) if other != worker]

    @functools.cached_property
    def degree(self) -> int:
        """The most neighbours from which a worker receives in a step."""
        return max(int((np.count_nonzero(matrix - np.diag(np.diag(matrix)), axis=1)).max()) for matrix in self.matrices)

    @functools.cached_property
    def messages(self) -> float:
        """The mean number of messages that a worker sends in a step, over workers and steps."""
        sent = [np.count_nonzero(matrix - np.diag(np.diag(matrix))) / len(matrix) for matrix in self.matrices]
        return float(np.mean(sent))

    @functools.cached_property
    def gap(self) -> float:
        """The spectral gap 1 - rho: 0 if the graph does not mix, 1 if a period computes the exact mean.

        rho is the second largest magnitude of an eigenvalue of W; with p matrices, it is the p-th root of that of their
        product.

        It bounds the distance sqrt(sum_i ||x_i - mean x||^2) from consensus if only mixing changes x:

        - W symmetric, or normal as for the exponential graph: every step multiplies the distance by at most rho (Xiao &
          Boyd, 2004, eq. 8).
        - W doubly stochastic: a step multiplies the distance by rho in the long run, though single steps may do worse;
          with several matrices, a period multiplies it by rho^p in the long run.
        - W column-stochastic: x does not converge to its mean, but x / w of push-sum does, by rho a step in the long
          run (Nedic & Olshevsky, 2015).
        """
        if self.period > _LONG:
            return 1.0 - self._measure_rate()
        product = functools.reduce(lambda before, matrix: matrix @ before, self.matrices)
        spectrum = np.linalg.eigvalsh if self.symmetric and self.period == 1 else np.linalg.eigvals
        magnitudes = np.sort(np.abs(spectrum(product)))[::-1]
        second = float(magnitudes[1]) if len(magnitudes) > 1 else 0.0
        second = 0.0 if second < 1e-12 else 1.0 if second > 1 - 1e-12 else second
        return 1.0 - second ** (1 / self.period)

    def _measure_rate(self) -> float:
        """Return the factor by which a step multiplies the distance from consensus, in the geometric mean."""
        x, logs = np.random.default_rng(0).standard_normal(self.workers), []
        for step in range(1, 2 * _PERIODS * self.period + 1):
            x = x - x.mean()
            length = float(np.linalg.norm(x))
            if length < 1e-12:
                return 0.0
            x = self.get_matrix(step) @ (x / length)
            logs.append(math.log(length))
        return math.exp(float(np.mean(logs[_PERIODS * self.period :])))

    def count_steps_to(self, share: float) -> int | None:
        """Return the number of steps, by the gap, until the distance from consensus is `share` of its initial value.

        None: it does not shrink.
        """
        if self.gap == 0.0:
            return None
        if self.gap == 1.0:
            return self.period
        return math.ceil(math.log(share) / math.log1p(-self.gap))
