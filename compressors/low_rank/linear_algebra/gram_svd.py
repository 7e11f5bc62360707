"""Singular value decompositions of gradients through their small Gram matrix.

For a (m, n) matrix A with m <= n, the eigenvectors U of the (m, m) matrix A A^T are the left singular
vectors and u_i^T A = sigma_i v_i^T, so A = sum_i u_i (u_i^T A): atoms that need no right vectors, and
whose sum is A as soon as U is orthogonal, however inaccurate the single u_i are.

Forming A A^T squares the condition number: in float32, singular values below some 1e-3 of the largest
drown in rounding. `decompose` notices when that matters and starts again in float64. Where there is no numba, or
kernels=torch, LAPACK finds all eigenvectors in float64 at once: slower, and the same up to rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from compressors.kernels import backend
from compressors.lazy import np, npt, torch
from compressors.low_rank.linear_algebra.gram_matrix import gram

_SMALL = 64
_SAFE_LENGTH = (1e-15, 1e17)
_TOLERATED = 0.05


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """The singular value decomposition of a matrix (m, n), m <= n, without right singular vectors.

    `sigma` (m,) are the singular values, largest first: exact enough to choose atoms by. A value that is lost in
    rounding is given at the level of that rounding (float32) or as zero (float64, less than 1e-6 of the largest).
    """

    sigma: npt.NDArray[np.float64]
    vectors: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating]]
    """Left singular vectors (k, m) of the k singular values whose numbers are given, 0 is the largest: rows of
    one orthogonal matrix, to the rounding of float32, whichever are asked for."""


def decompose(a: torch.Tensor, truncate: int | None) -> Spectrum | None:
    """Return the left singular vectors and singular values of `a` (m, n), m <= n, on any device.

    `truncate` is the number of leading vectors that the caller wants; None if it draws among all vectors. Return None
    for a matrix that holds NaN or Inf.

    Raises:
        torch.linalg.LinAlgError: neither eigenvectors nor singular vectors converge.
    """
    kernels = backend.select_on_host()
    if kernels == "torch" or "spectral" not in backend.used:  # numba is not forgotten over a small matrix
        backend.used["spectral"] = "torch"
    if a.shape[0] > _SMALL and kernels == "numba":
        matrix = gram(a).cpu()
        # A NaN or Inf, or a number whose square leaves float32, shows in the longest row. One pass less over `a`.
        if _SAFE_LENGTH[0] <= float(matrix.diagonal().max()) ** 0.5 <= _SAFE_LENGTH[1]:
            found = _tridiagonal(matrix, truncate)
            if found is not None:
                return found
    peak = max(abs(float(bound)) for bound in torch.aminmax(a))
    if not math.isfinite(peak):
        return None
    if peak == 0.0:
        return Spectrum(np.zeros(a.shape[0]), _rows_of(np.eye(a.shape[0], dtype=np.float32)))
    wide = a.double()
    eigen = _eigen(gram(wide).cpu())
    if eigen is None:
        left, singular, _ = torch.linalg.svd(wide.cpu(), full_matrices=False)
        return Spectrum(singular.numpy(), _rows_of(left.numpy()))
    vectors, values = eigen
    noise = a.shape[0] * float(np.finfo(np.float64).eps) * values[0]
    return Spectrum(np.sqrt(np.where(values > noise, values, 0.0)), _rows_of(vectors))


def _rows_of(vectors: npt.NDArray[np.floating]) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.floating]]:
    return lambda numbers: vectors[:, numbers].T


def _tridiagonal(matrix: torch.Tensor, truncate: int | None) -> Spectrum | None:
    """Decompose a Gram matrix in float32; return None if float32 is not exact enough."""
    from compressors.low_rank.linear_algebra import tridiagonal  # loads numba, which small layers do without

    backend.used["spectral"] = "numba"
    found = tridiagonal.make_tridiagonal(matrix, overwrite=True)
    if found is None:
        return None
    values = found.values[::-1]
    noise = 4.0 * float(np.finfo(np.float32).eps) * values[0]
    if not _good_enough(values, noise, truncate):
        return None
    last = len(values) - 1
    return Spectrum(np.sqrt(np.maximum(values, noise)), lambda numbers: found.vectors(last - numbers))


def _eigen(matrix: torch.Tensor) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.float64]] | None:
    """Return eigenvectors as columns and eigenvalues, largest first; None if LAPACK does not converge."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        return None
    descending = values.numpy()[::-1].astype(np.float64)
    return (vectors.numpy()[:, ::-1], descending) if np.isfinite(descending).all() else None


def _good_enough(values: npt.NDArray[np.float64], noise: float, truncate: int | None) -> bool:
    """Tell whether eigenvalues with an error of up to `noise` are exact enough.

    A truncation loses at most 2 * noise of energy per vector that it keeps. This must be little compared with the
    energy that it discards on purpose. A draw stays unbiased, but spends part of its budget on atoms that are mere
    noise. These must be a small part of the sum of all singular values.
    """
    if truncate is not None:
        return bool(2.0 * truncate * noise <= 0.01 * np.maximum(values[truncate:], 0.0).sum())
    swallowed = np.count_nonzero(values < noise) * np.sqrt(noise)
    return bool(swallowed <= _TOLERATED * np.sqrt(np.maximum(values, noise)).sum())


def keep_probabilities(sigma: npt.NDArray[np.float64], budget: float) -> npt.NDArray[np.float64]:
    """Compute p_i = min(1, c * sigma_i) that sum to `budget`; 1 if at most `budget` values are non-zero.

    The exact solution of Wang et al., "ATOMO", NeurIPS 2018, Algorithm 1: with sigma in descending order, the first t
    atoms have p = 1, for the smallest t with which no other atom exceeds 1 if the others share the rest of the budget.
    `sigma` (k,) is non-negative, finite and descending.
    """
    count = int(np.count_nonzero(sigma))
    if budget >= count:
        return (sigma > 0).astype(np.float64)
    relative = sigma / sigma[0]
    rest = np.cumsum(relative[::-1])[::-1]
    certain = np.arange(count)
    fits = (budget - certain) * relative[:count] <= rest[:count]
    first = int(np.argmax(fits))
    p = np.ones(len(sigma))
    p[first:] = np.minimum(1.0, (budget - first) * relative[first:] / rest[first])
    return p
