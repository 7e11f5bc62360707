"""Reduce a symmetric float32 matrix to tridiagonal form (Householder's method), and transform vectors back.

`eigen.py` works on the tridiagonal matrix, `low_rank/linear_algebra/tridiagonal.py` combines the parts.
"""

from __future__ import annotations

import numba
import numpy as np

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s
from compressors.kernels.cpu.primitives.jit import helper, kernel

_INNER = numba.njit(nogil=True, error_model="numpy", forceinline=True, fastmath={"reassoc", "contract", "nsz"})
"""A helper whose sums SIMD may reorder: what comes of it is the same every time, on one kind of processor. It is always
inlined: else the process that compiles a kernel shares one copy between all of them, and one that loads it does not."""


@_INNER
def _dot(a: Float32s, b: Float32s) -> float:
    """Return the inner product, computed in float64."""
    total = 0.0
    for index in range(a.size):
        total += np.float64(a[index]) * np.float64(b[index])
    return total


@_INNER
def _four_rows(a: Float32s, i: int, v: Float32s, w: Float32s, u: Float32s, y: Float32s) -> None:
    """Compute a -= v w^T + w v^T, then y += a u, for rows i to i + 3 left of column i, and for the columns that mirror
    them.
    """
    v0, v1, v2, v3 = v[i], v[i + 1], v[i + 2], v[i + 3]
    w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
    u0, u1, u2, u3 = u[i], u[i + 1], u[i + 2], u[i + 3]
    y0 = y1 = y2 = y3 = np.float32(0.0)
    for j in range(i):
        x0 = a[i, j] - (v0 * w[j] + w0 * v[j])
        x1 = a[i + 1, j] - (v1 * w[j] + w1 * v[j])
        x2 = a[i + 2, j] - (v2 * w[j] + w2 * v[j])
        x3 = a[i + 3, j] - (v3 * w[j] + w3 * v[j])
        a[i, j], a[i + 1, j], a[i + 2, j], a[i + 3, j] = x0, x1, x2, x3
        y[j] += (x0 * u0 + x1 * u1) + (x2 * u2 + x3 * u3)
        y0 += x0 * u[j]
        y1 += x1 * u[j]
        y2 += x2 * u[j]
        y3 += x3 * u[j]
    y[i] += y0
    y[i + 1] += y1
    y[i + 2] += y2
    y[i + 3] += y3


@helper
def _corner(a: Float32s, first: int, last: int, start: int, v: Float32s, w: Float32s, u: Float32s, y: Float32s) -> None:
    """Do the update of `_four_rows` for rows `first` to `last` - 1, from column `start` to the diagonal."""
    for i in range(first, last):
        for j in range(start, i):
            value = a[i, j] - (v[i] * w[j] + w[i] * v[j])
            a[i, j] = value
            y[j] += value * u[i]
            y[i] += value * u[j]
        a[i, i] -= np.float32(2.0) * v[i] * w[i]
        y[i] += a[i, i] * u[i]


@helper
def _reflection(row: Float32s, u: Float32s) -> float:
    """Find the reflection I - scale * u u^T that maps `row` to a multiple of (0, ..., 0, 1).

    Write u, whose last element is 1, and return the scale: 0 if `row` is such a multiple already.
    """
    last = row.size - 1
    if not _dot(row[:last], row[:last]) > 0.0:
        u[:] = 0.0
        return 0.0
    norm = np.sqrt(_dot(row, row))
    end = np.float64(row[last])
    pivot = end + (norm if end >= 0.0 else -norm)
    for index in range(last):
        u[index] = np.float32(row[index] / pivot)
    u[last] = np.float32(1.0)
    return 2.0 / _dot(u, u)  # of the rounded u, so that the reflection is one


@kernel("void(float32[:,::1], float64[::1], float64[::1], float64[::1])")
def tridiagonalise(a: Float32s, diagonal: Float64s, beside: Float64s, scales: Float64s) -> None:
    """Reduce a symmetric (n, n) matrix to its tridiagonal form: `diagonal` (n,) and off-diagonal `beside` (n - 1,).

    The lower triangle of `a` is read and overwritten: a[k, :k] and scales[k] become the reflection of row k.
    One pass over the remaining matrix applies the previous reflection and multiplies with the next one.
    """
    n = a.shape[0]
    u, v, w = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.float32)
    y = np.empty(n, np.float32)
    for k in range(n - 1, 0, -1):
        row = a[k, :k]
        for j in range(k):
            row[j] -= v[k] * w[j] + w[k] * v[j]
        diagonal[k] = a[k, k] - np.float32(2.0) * v[k] * w[k]
        scale = _reflection(row, u[:k])
        scales[k] = scale
        beside[k - 1] = np.float64(row[k - 1]) - scale * _dot(u[:k], row)
        row[:] = u[:k]
        y[:k] = 0.0
        whole = k >> 2 << 2
        for i in range(0, whole, 4):
            _four_rows(a, i, v, w, u, y)
            _corner(a, i, i + 4, i, v, w, u, y)
        _corner(a, whole, k, 0, v, w, u, y)
        half = 0.5 * scale * scale * _dot(y[:k], u[:k])
        for j in range(k):
            w[j] = np.float32(scale * y[j] - half * u[j])
            v[j] = u[j]
    diagonal[0] = a[0, 0]


@_INNER
def _reflect(line: Float64s, u: Float32s, scale: float) -> None:
    product = 0.0
    for index in range(u.size):
        product += np.float64(u[index]) * line[index]
    for index in range(u.size):
        line[index] -= scale * product * np.float64(u[index])


@kernel("void(float32[:,::1], float64[::1], float64[:,::1])")
def reflect_back(a: Float32s, scales: Float64s, x: Float64s) -> None:
    """Transform the rows of `x`, eigenvectors of the tridiagonal matrix, into eigenvectors of the original matrix."""
    for k in range(1, a.shape[0]):
        if scales[k] == 0.0:
            continue
        for which in range(x.shape[0]):
            _reflect(x[which], a[k, :k], scales[k])
