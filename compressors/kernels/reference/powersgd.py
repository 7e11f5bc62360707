"""PowerSGD's products of a gradient with thin factors, and bases, in plain torch; the order of sums here defines the
result.
"""

from __future__ import annotations

import math

import torch

from compressors.kernels.reference.primitives.buckets import lane_sums

LANES = 256
_IN_THE_SPAN = 0.1  # of a unit vector that had been made orthogonal to others: then it was made of rounding


def multiply_left(x: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out (r, rows) = (M Q)^T for the matrix M in `x` (n,) and Q^T = `right` (r, columns).

    In a sum of products, element i goes to lane i mod LANES, each lane is summed from left to right, and one half of
    the lanes is added to the other until one is left.
    """
    out.copy_(_dots(_matrix(x, right.shape[1])[None], right[:, None]))


def _dots(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the sums of a * x over the last dimension; the other dimensions are broadcast."""
    lanes = a.new_zeros(*torch.broadcast_shapes(a.shape[:-1], x.shape[:-1]), LANES)
    for one, other in zip(a.split(LANES, -1), x.split(LANES, -1), strict=True):
        lanes[..., : one.shape[-1]] += one * other
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def multiply_right(x: torch.Tensor, left: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out (r, columns) = (M^T P)^T for the matrix M in `x` (n,) and P^T = `left` (r, rows).

    Sums run over the rows from top to bottom.
    """
    out.zero_()
    for row, p in zip(_matrix(x, out.shape[1]), left.T, strict=True):  # the order of the additions matters
        out += p[:, None] * row


def add_product(left: torch.Tensor, right: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    """Compute out (n,) += (weight P) Q^T, one column of P after the other."""
    columns = (left.double() * weight).float()[:, :, None]
    total = columns[0] * right[0]
    for p, q in zip(columns[1:], right[1:], strict=True):
        total += p * q
    out += total.view(-1)[: len(out)]


def orthonormal(vectors: torch.Tensor) -> torch.Tensor:
    """Make the rows of every matrix of `vectors` (b, r, n), r <= n, orthonormal, in place, one after the other.

    Gram-Schmidt is done twice: a vector that almost lies in the span of those before it is mostly rounding errors after
    the first pass, and orthogonal to them after the second. A vector within that span becomes zero. NaN and Inf make a
    vector NaN. Return the numbers by which the vectors were divided, (b, r) float64: their norms after removing the
    components along those before them; zero for zeros.
    """
    lengths = vectors.new_empty(vectors.shape[:2], dtype=torch.float64)
    for row in range(vectors.shape[1]):
        one, before = vectors[:, row], vectors[:, :row]
        lengths[:, row] = _normalise(one)
        for again in range(2 if row else 0):
            for share, other in zip(_dots(one[:, None], before).T, before.unbind(1), strict=True):
                one -= share[:, None] * other
            remaining = _normalise(one)
            lengths[:, row] *= remaining
            if again:
                lost = remaining < _IN_THE_SPAN
                one[lost] = 0.0
                lengths[lost, row] = 0.0
    return lengths


def householder(vectors: torch.Tensor) -> None:
    """Make the rows of every matrix of `vectors` (b, r, n), r <= n, orthonormal, in place, by Householder's
    reflections.

    Let x be coordinates i to n - 1 of row i, after the reflections before. It is mapped to the first of these axes by
    the reflection across v = x / ||x|| + (1 or -1, as the first of x) along that axis, which is also applied to the
    rows below. The basis is the first r axes after all reflections, the last one first. A row within the span of those
    before it gives any direction outside of it. NaN and Inf make a matrix NaN from that row on.
    """
    reflectors = vectors.clone()
    for row in range(vectors.shape[1]):
        one = reflectors[:, row, row:]
        for _ in range(2):  # a second time, as the norm of denormals has few bits
            length = _normalise(one)
        one[:, 0] += torch.where(length == 0, 0.0, torch.where(one[:, 0] < 0, -1.0, 1.0))
        _normalise(one)
        for other in range(row + 1, vectors.shape[1]):
            _reflect(reflectors[:, other, row:], one)
    vectors.zero_()
    for row in reversed(range(vectors.shape[1])):
        vectors[:, row, row] = 1.0
        for other in range(row, vectors.shape[1]):
            _reflect(vectors[:, other, row:], reflectors[:, row, row:])


def _reflect(x: torch.Tensor, across: torch.Tensor) -> None:
    """Reflect x to x - 2 (x . v) v, in place, for the unit vectors v = `across` (b, n)."""
    x += (-2.0 * _dots(x, across))[:, None] * across


def _normalise(vectors: torch.Tensor) -> torch.Tensor:
    """Divide the vectors (b, n) by their norms and return the norms; zeros stay zeros, a NaN or Inf makes all elements
    NaN."""
    norm = lane_sums(vectors.double().square()).sqrt()
    vectors /= torch.where(norm == 0, 1.0, torch.where(norm.isfinite(), norm, math.nan)).float()[:, None]
    return norm


def _matrix(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Return `x` (n,) as rows, the last one padded with zeros."""
    return torch.nn.functional.pad(x, (0, -len(x) % columns)).view(-1, columns)
