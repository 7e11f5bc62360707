"""Selected eigenvalues and eigenvectors of a tridiagonal matrix in float64.

Eigenvalues are found by counting how many are below a shift (Sturm sequences), vectors by inverse iteration. LAPACK's
solvers, which find all of them, take several times as long. `low_rank/linear_algebra/tridiagonal.py` combines the
parts.
"""

from __future__ import annotations

import numpy as np

from compressors.kernels.cpu.primitives.arrays import Bools, Float64s, Int64s
from compressors.kernels.cpu.primitives.jit import helper, kernel

LANES = 32
ITERATIONS = 3


@helper
def _count(
    diagonal: Float64s, squares: Float64s, pivot: float, shifts: Float64s, state: Float64s, counts: Int64s
) -> None:
    """Compute counts[i] = number of eigenvalues below shifts[i].

    That is the number of negative pivots of a factorisation without row exchanges.
    """
    state[:] = 1.0
    counts[:] = 0
    for k in range(diagonal.size):
        centre = diagonal[k]
        square = squares[k - 1] if k else 0.0
        for lane in range(shifts.size):
            value = (centre - shifts[lane]) - square / state[lane]
            value = value if abs(value) > pivot else -pivot
            state[lane] = value
            counts[lane] += np.int64(value < 0.0)


@kernel("void(float64[::1], float64[::1], float64, float64[::1], int64[::1])")
def count_below(diagonal: Float64s, squares: Float64s, pivot: float, shifts: Float64s, counts: Int64s) -> None:
    """Count the eigenvalues of a tridiagonal matrix below each of `shifts`.

    `squares` are the squares of the off-diagonal, `pivot` is the smallest magnitude by which they may be divided.
    """
    state = np.empty(LANES)
    for first in range(0, shifts.size, LANES):
        last = min(first + LANES, shifts.size)
        _count(diagonal, squares, pivot, shifts[first:last], state[: last - first], counts[first:last])


@kernel("void(float64[::1], float64[::1], float64, int64[::1], int64, float64[::1], float64[::1])")
def bisect(
    diagonal: Float64s, squares: Float64s, pivot: float, numbers: Int64s, rounds: int, low: Float64s, high: Float64s
) -> None:
    """Halve the intervals low[i] to high[i] around the eigenvalues numbers[i] (0 is the smallest) `rounds` times."""
    state, shifts, counts = np.empty(LANES), np.empty(LANES), np.empty(LANES, np.int64)
    for first in range(0, numbers.size, LANES):
        size = min(LANES, numbers.size - first)
        for _ in range(rounds):
            for lane in range(size):
                shifts[lane] = 0.5 * (low[first + lane] + high[first + lane])
            _count(diagonal, squares, pivot, shifts[:size], state[:size], counts[:size])
            for lane in range(size):
                if counts[lane] > numbers[first + lane]:
                    high[first + lane] = shifts[lane]
                else:
                    low[first + lane] = shifts[lane]


@helper
def _factorise(
    diagonal: Float64s, beside: Float64s, shift: float, pivot: float, factors: Float64s, exchanged: Bools
) -> None:
    """Compute the LU factors of the matrix minus `shift`, with exchanges of neighbouring rows.

    factors[0:3] are the three diagonals of U, from the main one up; factors[3] are the multipliers of L.
    """
    n = diagonal.size
    centre, right = diagonal[0] - shift, beside[0]
    for k in range(n - 1):
        below, next_centre = beside[k], diagonal[k + 1] - shift
        next_right = beside[k + 1] if k + 2 < n else 0.0
        exchanged[k] = abs(below) > abs(centre)
        if exchanged[k]:
            factors[0, k], factors[1, k], factors[2, k] = below, next_centre, next_right
            factors[3, k] = centre / below
            centre, right = right - factors[3, k] * next_centre, -factors[3, k] * next_right
        else:
            if abs(centre) < pivot:
                centre = pivot
            factors[0, k], factors[1, k], factors[2, k] = centre, right, 0.0
            factors[3, k] = below / centre
            centre, right = next_centre - factors[3, k] * right, next_right
    factors[0, n - 1] = centre if abs(centre) >= pivot else pivot


@helper
def _solve(factors: Float64s, exchanged: Bools, x: Float64s) -> None:
    """Solve for `x` in place with the LU factors, scaling it down whenever it grows large."""
    n = x.size
    for k in range(n - 1):
        if exchanged[k]:
            x[k], x[k + 1] = x[k + 1], x[k] - factors[3, k] * x[k + 1]
        else:
            x[k + 1] -= factors[3, k] * x[k]
    for k in range(n - 1, -1, -1):
        value = x[k]
        if k + 1 < n:
            value -= factors[1, k] * x[k + 1]
        if k + 2 < n:
            value -= factors[2, k] * x[k + 2]
        value /= factors[0, k]
        x[k] = value
        if abs(value) > 1e100:
            x *= 1e-100


@helper
def _remove(x: Float64s, direction: Float64s) -> None:
    product = 0.0
    for index in range(x.size):
        product += direction[index] * x[index]
    for index in range(x.size):
        x[index] -= product * direction[index]


@helper
def _normalise(x: Float64s) -> None:
    largest = 0.0
    for value in x:
        largest = max(largest, abs(value))
    total = 0.0
    for index in range(x.size):
        x[index] /= largest
        total += x[index] * x[index]
    x /= np.sqrt(total)


@kernel("void(float64[::1], float64[::1], float64, int64[::1], float64[::1], int64[::1], float64[:,::1])")
def eigenvectors(
    diagonal: Float64s,
    beside: Float64s,
    pivot: float,
    numbers: Int64s,
    values: Float64s,
    clusters: Int64s,
    out: Float64s,
) -> None:
    """Write the eigenvectors for the eigenvalues `values` to the rows of `out`, by inverse iteration.

    Neighbours with the same number in `clusters`, which the iteration cannot separate, are made orthogonal to each
    other. The start vectors depend on `numbers`, the ranks of the eigenvalues among all. `pivot` has the size of the
    matrix's rounding errors.
    """
    n = diagonal.size
    factors, exchanged = np.zeros((4, n)), np.zeros(n, np.bool_)
    for which in range(values.size):
        x = out[which]
        state = np.uint64(numbers[which])
        for index in range(n):  # any start will do that is not orthogonal to the vector
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            x[index] = 0.5 + np.float64(state >> np.uint64(40)) * 2.0**-24
        _factorise(diagonal, beside, values[which], pivot, factors, exchanged)
        for _ in range(ITERATIONS):
            _solve(factors, exchanged, x)
            _normalise(x)
            for _ in range(2):  # once is not enough where little is left
                for other in range(which):
                    if clusters[other] == clusters[which]:
                        _remove(x, out[other])
                _normalise(x)
