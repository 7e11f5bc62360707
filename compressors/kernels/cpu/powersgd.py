"""Products of a gradient with thin factors, for PowerSGD, and orthonormal bases.

A linear algebra library would do, except for the last bits: they would depend on its version, on the number of threads
and on the alignment of a gradient. Here all sums have one order, which `kernels.reference.powersgd` defines. Several
terms are added in one pass, one after the other, to save memory traffic. The gradient is a matrix, given as its
elements (n,), whose last row may be incomplete, as if padded with zeros.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.sums import sum_squares_in_8_lanes

LANES = 256
_TILE = 1024
_IN_THE_SPAN = 0.1


@helper
def _add1(out: Float32s, a: np.float32, x: Float32s) -> None:
    for index in range(out.size):
        out[index] += a * x[index]


@helper
def _add2(out: Float32s, a: np.float32, x: Float32s, b: np.float32, y: Float32s) -> None:
    for index in range(out.size):
        out[index] = (out[index] + a * x[index]) + b * y[index]


@helper
def _add_sum(out: Float32s, a: np.float32, x: Float32s, b: np.float32, y: Float32s) -> None:
    for index in range(out.size):
        out[index] += a * x[index] + b * y[index]


@helper
def _set_sum(out: Float32s, a: np.float32, x: Float32s, b: np.float32, y: Float32s) -> None:
    for index in range(out.size):
        out[index] = a * x[index] + b * y[index]


@helper
def _products1(out: Float32s, a: Float32s, x: Float32s) -> None:
    for index in range(out.size):
        out[index] += a[index] * x[index]


@helper
def _products4(out: Float32s, a: Float32s, x: Float32s) -> None:
    """Compute `_products1` four times, for four neighbouring pieces of `a` and `x`."""
    size = out.size
    for index in range(size):
        two = (out[index] + a[index] * x[index]) + a[size + index] * x[size + index]
        out[index] = (two + a[2 * size + index] * x[2 * size + index]) + a[3 * size + index] * x[3 * size + index]


@helper
def _dot(a: Float32s, x: Float32s, lanes: Float32s) -> np.float32:
    """Return the sum of a * x: element i goes to lane i mod LANES, then halves of the lanes are added to each other."""
    lanes[:] = 0.0
    first = 0
    while first + 4 * LANES <= a.size:
        _products4(lanes, a[first : first + 4 * LANES], x[first : first + 4 * LANES])
        first += 4 * LANES
    while first < a.size:
        last = min(first + LANES, a.size)
        _products1(lanes[: last - first], a[first:last], x[first:last])
        first = last
    half = LANES >> 1
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half >>= 1
    return lanes[0]


@helper
def _normalise(x: Float32s, sums: Float64s) -> float:
    """Divide `x` by its norm and return the norm; zeros stay zeros, a single NaN or Inf makes all elements NaN."""
    norm = np.sqrt(sum_squares_in_8_lanes(x, sums))
    divisor = np.float32(norm) if np.isfinite(norm) else np.float32(np.nan)
    if norm != 0.0:
        for index in range(x.size):
            x[index] /= divisor
    return norm


@kernel("void(float32[:, :, ::1], float64[:, ::1])")
def _orthonormal(vectors: Float32s, lengths: Float64s) -> None:
    rank = vectors.shape[1]
    lanes = np.empty(LANES, np.float32)
    sums = np.empty(8, np.float64)
    shares = np.empty(rank, np.float32)
    for number in range(vectors.shape[0]):
        for row in range(rank):
            one = vectors[number, row]
            length = _normalise(one, sums)
            for again in range(2 if row else 0):
                for k in range(row):
                    shares[k] = -_dot(one, vectors[number, k], lanes)
                for k in range(row):
                    _add1(one, shares[k], vectors[number, k])
                remaining = _normalise(one, sums)
                length *= remaining
                if remaining < _IN_THE_SPAN and again:
                    one[:] = 0.0
                    length = 0.0
            lengths[number, row] = length


@helper
def _reflect(x: Float32s, across: Float32s, lanes: Float32s) -> None:
    """Reflect x to x - 2 (x . v) v for the unit vector v = `across`."""
    _add1(x, np.float32(-2.0) * _dot(x, across, lanes), across)


@kernel("void(float32[:, :, ::1])")
def _householder(vectors: Float32s) -> None:
    rank = vectors.shape[1]
    lanes = np.empty(LANES, np.float32)
    sums = np.empty(8, np.float64)
    reflectors = np.empty(vectors.shape[1:], np.float32)
    for number in range(vectors.shape[0]):
        reflectors[:] = vectors[number]
        for row in range(rank):
            one = reflectors[row][row:]
            for _ in range(2):
                length = _normalise(one, sums)
            if length != 0.0:
                one[0] += np.float32(-1.0) if one[0] < 0.0 else np.float32(1.0)
                _normalise(one, sums)
            for other in range(row + 1, rank):
                _reflect(reflectors[other][row:], one, lanes)
        vectors[number] = 0.0
        for row in range(rank - 1, -1, -1):
            vectors[number, row, row] = 1.0
            for other in range(row, rank):
                _reflect(vectors[number, other][row:], reflectors[row][row:], lanes)


@kernel("void(float32[::1], float32[:, ::1], float32[:, ::1])")
def _multiply_left(x: Float32s, right: Float32s, out: Float32s) -> None:
    columns = right.shape[1]
    lanes = np.empty(LANES, np.float32)
    for row in range(out.shape[1]):
        elements = x[row * columns : min((row + 1) * columns, x.size)]
        for k in range(out.shape[0]):
            out[k, row] = _dot(elements, right[k, : elements.size], lanes)


@kernel("void(float32[::1], float32[:, ::1], float32[:, ::1])")
def _multiply_right(x: Float32s, left: Float32s, out: Float32s) -> None:
    columns = out.shape[1]
    out[:] = 0.0
    whole = x.size // columns
    for first in range(0, columns, _TILE):
        last = min(first + _TILE, columns)
        for row in range(0, whole - 1, 2):
            one = x[row * columns + first : row * columns + last]
            two = x[(row + 1) * columns + first : (row + 1) * columns + last]
            for k in range(out.shape[0]):
                _add2(out[k, first:last], left[k, row], one, left[k, row + 1], two)
        for row in range(whole & ~1, left.shape[1]):
            start = row * columns + first
            stop = min(row * columns + last, x.size)
            for k in range(out.shape[0] if stop > start else 0):
                _add1(out[k, first : first + stop - start], left[k, row], x[start:stop])


@kernel("void(float32[:, ::1], float32[:, ::1], float64, float32[::1])")
def _add(left: Float32s, right: Float32s, weight: float, out: Float32s) -> None:
    columns = right.shape[1]
    rank = left.shape[0]
    products = np.empty(_TILE, np.float32)
    for first in range(0, columns, _TILE):
        for row in range(left.shape[1]):
            start = row * columns + first
            stop = min(row * columns + min(first + _TILE, columns), out.size)
            if stop <= start:
                continue
            last = first + stop - start
            if rank == 1:
                _add1(out[start:stop], np.float32(left[0, row] * weight), right[0, first:last])
                continue
            a = np.float32(left[0, row] * weight)
            b = np.float32(left[1, row] * weight)
            if rank == 2:
                _add_sum(out[start:stop], a, right[0, first:last], b, right[1, first:last])
                continue
            total = products[: stop - start]
            _set_sum(total, a, right[0, first:last], b, right[1, first:last])
            for k in range(2, rank - 1, 2):
                a = np.float32(left[k, row] * weight)
                b = np.float32(left[k + 1, row] * weight)
                _add2(total, a, right[k, first:last], b, right[k + 1, first:last])
            if rank & 1:
                _add1(total, np.float32(left[rank - 1, row] * weight), right[rank - 1, first:last])
            _add1(out[start:stop], np.float32(1.0), total)


def multiply_left(x: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    _multiply_left(x.numpy(), right.numpy(), out.numpy())


def multiply_right(x: torch.Tensor, left: torch.Tensor, out: torch.Tensor) -> None:
    _multiply_right(x.numpy(), left.numpy(), out.numpy())


def add_product(left: torch.Tensor, right: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    _add(left.numpy(), right.numpy(), weight, out.numpy())


def orthonormal(vectors: torch.Tensor) -> torch.Tensor:
    lengths = torch.empty(vectors.shape[:2], dtype=torch.float64)
    _orthonormal(vectors.numpy(), lengths.numpy())
    return lengths


def householder(vectors: torch.Tensor) -> None:
    _householder(vectors.numpy())
