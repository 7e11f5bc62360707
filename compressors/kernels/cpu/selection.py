"""Select elements by magnitude without sorting; `kernels.reference.selection` says what is selected.

To find the k largest of n, a threshold is estimated from a sample, and one pass collects the candidates that reach it.
The k-th largest of these is found exactly, digit by digit, with histograms. If the sample misled (too few candidates,
or far too many), or if k is a large part of n, the histograms are of the tensor itself. The result is the same either
way.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Int32s, Int64s
from compressors.kernels.cpu.primitives.jit import helper, kernel

_MAGNITUDE = np.int32(0x7FFFFFFF)
_ALL = np.int32(-1)
_SIGN = np.int32(-(2**31))
_INFINITY = 0x7F800000
_GROUP = 32
"""Elements of which the largest is found before any is looked at."""
_DIGITS = ((20, 11), (10, 10), (0, 10))
"""Shift and bits of each histogram's digit of a 31-bit magnitude, the highest first."""
_SAMPLE = 16384
_SMALL = 1 << 14
_MIX = np.uint64(0x9E3779B97F4A7C15)


@helper
def _size(bits: np.int32, mask: np.int32, flip: np.int32) -> np.int32:
    """Return the magnitude of an element, as bits; zero if it does not have the selected sign."""
    return max(np.int32((bits & mask) ^ flip), np.int32(0))


@helper
def largest_of(bits: Int32s, mask: np.int32, flip: np.int32) -> np.int32:
    """Return the largest magnitude among the elements with the selected sign, as bits; zero without such elements."""
    largest = np.int32(0)
    for index in range(bits.size):
        largest = max(largest, np.int32((bits[index] & mask) ^ flip))
    return largest


@helper
def largest_of_four(bits: Int32s, part: int, first: int, last: int, mask: np.int32, flip: np.int32) -> np.int32:
    """Return the largest magnitude of the elements first ... last - 1 of each of four parts of `part` elements.

    Reading in four places at once, one core gets about one and a half times the memory bandwidth of reading in one.
    """
    one, two = bits[first:last], bits[part + first : part + last]
    three, four = bits[2 * part + first : 2 * part + last], bits[3 * part + first : 3 * part + last]
    largest = np.int32(0)
    for index in range(last - first):
        left = max(np.int32((one[index] & mask) ^ flip), np.int32((two[index] & mask) ^ flip))
        right = max(np.int32((three[index] & mask) ^ flip), np.int32((four[index] & mask) ^ flip))
        largest = max(largest, max(left, right))
    return largest


@kernel("int32(int32[::1], int32, int32)")
def _largest(bits: Int32s, mask: np.int32, flip: np.int32) -> np.int32:
    part = bits.size // 4
    return max(largest_of_four(bits, part, 0, part, mask, flip), largest_of(bits[4 * part :], mask, flip))


@kernel("int64(int32[::1], int32, int32, int32)")
def _count(bits: Int32s, mask: np.int32, flip: np.int32, threshold: np.int32) -> int:
    total = 0
    for first in range(0, bits.size, 4096):
        block = bits[first : first + 4096]
        found = np.int32(0)  # 32 bits are counted twice as fast as 64
        for index in range(block.size):
            found += np.int32(np.int32((block[index] & mask) ^ flip) >= threshold)
        total += found
    return total


@kernel("int64(int32[::1], int32, int32, int32, int64[::1])")
def _collect(bits: Int32s, mask: np.int32, flip: np.int32, threshold: np.int32, found: Int64s) -> int:
    """Write the positions of magnitudes of at least `threshold` to `found`, and return their number.

    Return -1 if they do not fit into `found`, less _GROUP elements.
    """
    count = 0
    capacity = found.size - _GROUP
    whole = bits.size // _GROUP * _GROUP
    for first in range(0, whole, _GROUP):
        group = bits[first : first + _GROUP]
        if largest_of(group, mask, flip) < threshold:
            continue
        # Always stored, and kept by counting on: no branch to guess. There is room for a whole group.
        for offset in range(_GROUP):
            found[count] = first + offset
            count += np.int64(np.int32((group[offset] & mask) ^ flip) >= threshold)
        if count > capacity:
            return -1
    for index in range(whole, bits.size):
        found[count] = index
        count += np.int64(np.int32((bits[index] & mask) ^ flip) >= threshold)
    return -1 if count > capacity else count


@helper
def _kth(sizes: Int32s, mask: np.int32, flip: np.int32, k: int) -> tuple[np.int32, int]:
    """Return the k-th largest magnitude, and how many of the k largest equal it; 1 <= k <= the number of `sizes`."""
    counts = np.empty(2048, np.int64)
    prefix = np.int32(0)
    left = k
    for shift, width in _DIGITS:
        counts[:] = 0
        above = shift + width
        for index in range(sizes.size):
            size = _size(sizes[index], mask, flip)
            if (size >> above) == (prefix >> above):
                counts[(size >> shift) & ((1 << width) - 1)] += 1
        digit = (1 << width) - 1
        while counts[digit] < left:
            left -= counts[digit]
            digit -= 1
        prefix |= np.int32(digit << shift)
    return prefix, left


@kernel("int32(int32[::1], int32, int32, int64, int64)")
def _estimate(bits: Int32s, mask: np.int32, flip: np.int32, sample: int, rank: int) -> np.int32:
    """Return the `rank`-th largest magnitude of a sample with one element from each of `sample` equal parts of the
    tensor.

    Their places in the parts are irregular, so that they do not follow a period of a layer.
    """
    taken = np.empty(sample, np.int32)
    part = bits.size // sample
    for number in range(sample):
        mixed = (np.uint64(number) + np.uint64(1)) * _MIX
        taken[number] = bits[number * part + np.int64((mixed >> np.uint64(33)) % np.uint64(part))]
    return _kth(taken, mask, flip, rank)[0]


@kernel("int64(int32[::1], int32, int32, int64, int64[::1])")
def _best_of(bits: Int32s, mask: np.int32, flip: np.int32, k: int, candidates: Int64s) -> int:
    """Move the positions of the k largest to the front of the ascending `candidates`; return how many they are."""
    sizes = np.empty(candidates.size, np.int32)
    for at in range(candidates.size):
        sizes[at] = _size(bits[candidates[at]], mask, flip)
    least, ties = _kth(sizes, _ALL, np.int32(0), k)
    count = 0
    for at in range(candidates.size):
        equal = sizes[at] == least
        candidates[count] = candidates[at]
        count += np.int64((sizes[at] > least) | (equal & (ties > 0)))
        ties -= np.int64(equal)
        if count == k:
            break
    return count


@kernel("int64(int32[::1], int32, int32, int64, boolean, int64[::1])")
def _exhaustive(bits: Int32s, mask: np.int32, flip: np.int32, k: int, zeros: bool, found: Int64s) -> int:
    """Write the positions of the k largest to `found`, which has k elements, and return their number.

    Zeros are among them only if `zeros` is true.
    """
    least, ties = _kth(bits, mask, flip, k)
    if least == 0 and not zeros:
        ties = 0
    count = 0
    for index in range(bits.size):
        size = _size(bits[index], mask, flip)
        if size > least or (size == least and ties > 0):
            found[count] = index
            count += 1
            ties -= np.int64(size == least)
            if count == k:
                break
    return count


_SIDES = {0: (_MAGNITUDE, np.int32(0)), 1: (_ALL, np.int32(0)), -1: (_ALL, _SIGN)}


def largest(x: torch.Tensor, side: int = 0) -> int:
    return int(_largest(x.numpy().view(np.int32), *_SIDES[side]))


def is_finite(x: torch.Tensor) -> bool:
    return largest(x) < _INFINITY


def count_above(x: torch.Tensor, threshold: int, side: int = 0) -> int:
    return int(_count(x.numpy().view(np.int32), *_SIDES[side], np.int32(threshold)))


def collect_above(x: torch.Tensor, threshold: int, capacity: int, side: int = 0) -> torch.Tensor | None:
    found = np.empty(capacity + _GROUP, np.int64)
    count = _collect(x.numpy().view(np.int32), *_SIDES[side], np.int32(threshold), found)
    return torch.from_numpy(found[:count]) if count >= 0 else None


def topk(x: torch.Tensor, k: int, side: int = 0) -> torch.Tensor:
    bits = x.numpy().view(np.int32)
    n = bits.size
    k = min(max(k, 0), n)
    if k == 0 or (k == n and side == 0):
        return torch.arange(k)
    sides = _SIDES[side]
    if n > _SMALL and k <= n // 8:
        sample = min(_SAMPLE, n // 64)
        expected = sample * k / n
        rank = min(sample, math.ceil(expected + 3.0 * math.sqrt(expected) + 3.0))
        threshold = int(_estimate(bits, *sides, sample, rank))
        # The margin is that of the rank, once more, for the error of the sample in the other direction.
        capacity = math.ceil(n / sample * (expected + 7.0 * math.sqrt(expected) + 8.0))
        found = collect_above(x, threshold, capacity, side) if threshold else None
        if found is not None and len(found) >= k:
            return found[: _best_of(bits, *sides, k, found.numpy())].clone()  # lets go of the other candidates
    indices = np.empty(k, np.int64)
    return torch.from_numpy(indices[: _exhaustive(bits, *sides, k, side == 0, indices)])
