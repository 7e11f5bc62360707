"""Select the largest elements of every block of a matrix; `kernels.reference.chunks` says what is selected.

The magnitudes of a block are copied into the first-level cache. Those that reach a threshold, the k-th largest of the
block before with a margin, are candidates; if there are fewer than k, all elements are. The k-th largest candidate is
found bit by bit.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Int32s, Int64s, Uint8s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper, kernel

_MAGNITUDE = np.int32(0x7FFFFFFF)
_GROUP = 8
_ONE = np.uint64(1)
_HIGHEST = 30
_MARGIN = np.int32(1 << 20)
"""An eighth of a power of two, in bits of a float32."""


@helper
def _compare(sizes: Int32s, threshold: np.int32, flags: Uint8s) -> None:
    for index in range(flags.size):
        flags[index] = np.uint8(sizes[index] >= threshold)


@helper
def _collect(sizes: Int32s, reaches: Uint64s, taken: Int32s, places: Int32s) -> int:
    """Write the magnitudes that reach the threshold, and their positions; return their number.

    `reaches` has a byte for each magnitude, 1 where it does, and zeros behind the last; eight are one word.
    """
    count = 0
    for word in range(reaches.size):
        if reaches[word] == 0:
            continue
        flags = reaches[word]
        for offset in range(min(_GROUP, sizes.size - word * _GROUP)):
            taken[count] = sizes[word * _GROUP + offset]
            places[count] = word * _GROUP + offset
            count += np.int64((flags >> np.uint64(8 * offset)) & _ONE)
    return count


@helper
def _count(sizes: Int32s, threshold: np.int32) -> np.int32:
    found = np.int32(0)
    for index in range(sizes.size):
        found += np.int32(sizes[index] >= threshold)
    return found


@helper
def _kth(sizes: Int32s, k: int) -> np.int32:
    """Return the k-th largest of the magnitudes, 1 <= k <= their number."""
    known = np.int32(0)
    for bit in range(_HIGHEST, -1, -1):
        tried = known | np.int32(1 << bit)
        if _count(sizes, tried) >= k:
            known = tried
    return known


@kernel("void(int32[::1], int64, int64, int64, int64, int64[::1])")
def _select(bits: Int32s, columns: int, height: int, width: int, k: int, found: Int64s) -> None:
    size = height * width
    sizes = np.empty(size, np.int32)
    taken = np.empty(size + _GROUP, np.int32)
    places = np.empty(size + _GROUP, np.int32)
    reaches = np.zeros((size + 7) // 8, np.uint64)
    flags = reaches.view(np.uint8)
    threshold = np.int32(0)
    written = 0
    first = 0
    for top in range(0, bits.size, height * columns):
        for left in range(0, columns, width):
            for row in range(height):
                start = top + row * columns + left
                source = bits[start : start + width]
                target = sizes[row * width : row * width + width]
                for index in range(width):
                    target[index] = source[index] & _MAGNITUDE
            _compare(sizes, threshold, flags[:size])
            count = _collect(sizes, reaches, taken, places)
            if count < k:
                flags[:size] = 1
                count = _collect(sizes, reaches, taken, places)
            least = _kth(taken[:count], k)
            ties = k - _count(taken[:count], least + np.int32(1)) if least < _MAGNITUDE else k
            for at in range(count):
                if taken[at] > least or (taken[at] == least and ties > 0):
                    found[written] = first + places[at]
                    written += 1
                    ties -= np.int64(taken[at] == least)
            threshold = max(least - _MARGIN, np.int32(0))
            first += size


@kernel("void(int64[::1], int64, int64, int64, int64[::1])")
def _locate(places: Int64s, columns: int, height: int, width: int, found: Int64s) -> None:
    across = np.uint64(columns // width)
    size, wide = np.uint64(height * width), np.uint64(width)
    for at in range(places.size):
        place = np.uint64(places[at])
        block, inside = place // size, place % size
        row = block // across * np.uint64(height) + inside // wide
        found[at] = np.int64(row * np.uint64(columns) + block % across * wide + inside % wide)


def select(x: torch.Tensor, columns: int, height: int, width: int, k: int) -> torch.Tensor:
    found = np.empty(x.numel() // (height * width) * k, np.int64)
    _select(x.numpy().view(np.int32), columns, height, width, k, found)
    return torch.from_numpy(found)


def locate(places: torch.Tensor, columns: int, height: int, width: int) -> torch.Tensor:
    found = torch.empty_like(places)
    _locate(places.numpy(), columns, height, width, found.numpy())
    return found
