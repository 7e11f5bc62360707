"""Cut a histogram into buckets, in numpy: the part of the sketches that does not depend on the tensor's size.

A cell is what the upper 16 bits of a float32 name: sign, exponent and 7 bits of the mantissa. Within a cell
values are evenly spaced, so that the number of elements and the sum of their lower 16 bits, both integers,
give the exact sum of the cell, in whatever order they were counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Buckets = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]
"""The bucket of every cell, (CELLS,), and the mean of every bucket."""
Cut = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64], int], Buckets]
"""A function that cuts cells into buckets: see `buckets`."""

CELLS = 1 << 16
_INFINITE = 0x7F80
_SIGN = 1 << 15


def buckets(counts: npt.NDArray[np.int64], lows: npt.NDArray[np.int64], number: int) -> Buckets:
    """Return the bucket of every cell, (CELLS,), and the mean of every bucket, (number,).

    All means are NaN if a cell of NaN or Inf is not empty. `counts` and `lows` (CELLS,) are the number of elements and
    the sum of their lower 16 bits.
    """
    table = np.zeros(CELLS, np.uint8)
    used = np.flatnonzero(counts)
    if ((used & (_SIGN - 1)) >= _INFINITE).any():
        return table, np.full(number, np.nan, np.float32)
    negative = used[used >= _SIGN][::-1]  # ascending in value: the largest magnitude first
    positive = used[used < _SIGN]
    below = _share(int(counts[negative].sum()), int(counts[positive].sum()), number)
    table[negative] = _cut(counts[negative], below)
    table[positive] = below + _cut(counts[positive], number - below)
    return table, _average(table, np.concatenate([negative, positive]), counts, lows, number)


def bins_of_deviations(sigmas: float, bins: int) -> Cut:
    """Return a function that cuts cells into at most `bins` even bins over `sigmas` standard deviations.

    The mean of the elements is the centre of bin bins / 2, and the outermost bins have no end. The mean of a cell says
    in which bin its elements are. Bins without elements are left out, and the others are numbered from 0 on.
    """
    return functools.partial(_cut_evenly, sigmas, bins)


def _cut_evenly(
    sigmas: float, bins: int, counts: npt.NDArray[np.int64], lows: npt.NDArray[np.int64], number: int
) -> Buckets:
    table = np.zeros(CELLS, np.uint8)
    used = np.flatnonzero(counts)
    if ((used & (_SIGN - 1)) >= _INFINITE).any():
        return table, np.full(number, np.nan, np.float32)
    cells = np.concatenate([used[used >= _SIGN][::-1], used[used < _SIGN]])
    values = _sums(cells, counts[cells], lows[cells]) / counts[cells]
    # Sums of arrays are numpy's own, of which not every version adds in the same order: cumsum adds one by one.
    count = int(counts[cells].sum())
    centre = np.cumsum(values * counts[cells])[-1] / count
    variance = np.cumsum(np.square(values - centre) * counts[cells])[-1] / max(1, count - 1)
    width = np.sqrt(variance) * (sigmas / bins)
    if width > 0:
        places = np.clip(np.rint((values - centre) / width) + bins // 2, 0, bins - 1).astype(np.int64)
        occupied = np.zeros(bins, np.int64)
        occupied[places] = 1
        table[cells] = (np.cumsum(occupied) - 1)[places]
    return table, _average(table, cells, counts, lows, number)


def _average(
    table: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    lows: npt.NDArray[np.int64],
    number: int,
) -> npt.NDArray[np.float32]:
    """Return the mean of the elements of each of `number` buckets, (number,); zero for one without elements."""
    total = np.bincount(table[cells], _sums(cells, counts[cells], lows[cells]), number)
    elements = np.bincount(table[cells], counts[cells], number)
    means: npt.NDArray[np.float32] = (total / np.maximum(elements, 1.0)).astype(np.float32)
    return means


def _share(negative: int, positive: int, number: int) -> int:
    """Return the number of buckets for the negative elements: in proportion, but at least one for each sign that
    occurs.
    """
    if not negative or not positive:
        return number if negative else 0
    return min(max((2 * number * negative + negative + positive) // (2 * (negative + positive)), 1), number - 1)


def _cut(counts: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each cell by the cells' counts, all above zero; buckets ascend and are below `number`."""
    if len(counts) <= number:
        return np.arange(len(counts))
    weights = np.minimum(counts, _fair(counts, number)).astype(np.float64)
    ends = np.cumsum(weights)
    place = np.floor((ends - weights / 2) * (number / ends[-1])).astype(np.int64)
    return np.minimum(place, number - 1)


def _fair(counts: npt.NDArray[np.int64], number: int) -> float:
    """Return the fair number w of elements in a bucket: sum(min(counts, w)) = number * w.

    A cell with more than w elements counts as one bucket.
    """
    ascending = np.sort(counts)
    sums = np.cumsum(ascending)
    large = np.arange(min(number, len(counts)))  # so many cells are above the share
    shares = sums[len(counts) - 1 - large] / (number - large)
    fits = ascending[len(counts) - 1 - large] <= shares
    return float(shares[np.argmax(fits)])  # the last one fits, as there are more cells than buckets


def _sums(
    cells: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], lows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the sum of the elements of each of these cells.

    A float32 is an integer of 24 bits times a power of two, which is the same for a whole cell.
    """
    exponent = (cells >> 7) & 0xFF
    first = ((cells & 0x7F) | np.where(exponent > 0, 0x80, 0)) << 16
    magnitude = np.ldexp((counts * first + lows).astype(np.float64), np.maximum(exponent, 1) - 150)
    return np.where(cells >= _SIGN, -magnitude, magnitude)
