"""Draw random subsets in time k + n / 64; `kernels.reference.randomk` defines the subset of a key.

Members are bits of a map of the tensor (3 % of its bytes), which is then read in ascending order.

Indices are unsigned: for a signed index, numba checks whether it is below zero.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Int32s, Int64s, Uint64s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.selection import largest_of, largest_of_four

CHUNK = 1024
_FITS = 2**31
_RESOLUTION = 2.0**-53
_ZERO, _ONE, _6, _63, _64 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(64)
_ALL = np.uint64(2**64 - 1)
_32 = np.uint64(32)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_NO_FLIP = np.int32(0)
_PARTS = 4
_BLOCK = 16384
"""Elements of each part that are in the cache together."""
_room = threading.local()


def _trailing_zeros(context: Any, bits: Any) -> Any:
    """Return the position of the lowest set bit of a 64-bit word, 64 if none is set, by a single instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.uint64(types.uint64), generate


_lowest: Any = intrinsic(_trailing_zeros)


@helper
def _numbers(key: np.uint64, n: int, chunk: int, numbers: Int64s) -> None:
    """Draw the random numbers of one chunk."""
    upper_low, upper_high = halves(stream_bits(key, np.uint64(2 * chunk)))
    lower_low, lower_high = halves(stream_bits(key, np.uint64(2 * chunk + 1)))
    if n < _FITS:
        factor = np.uint64(np.uint32(n))
        for index in range(numbers.size):
            high = np.uint64(draw(upper_low, upper_high, np.uint32(index)))
            low = np.uint64(draw(lower_low, lower_high, np.uint32(index)))
            numbers[index] = np.int64((high * factor + ((low * factor) >> _32)) >> _32)
        return
    for index in range(numbers.size):
        high = np.uint64(draw(upper_low, upper_high, np.uint32(index)))
        low = np.uint64(draw(lower_low, lower_high, np.uint32(index)))
        u = np.float64(np.int64((high << np.uint64(21)) | (low >> np.uint64(11)))) * _RESOLUTION
        numbers[index] = min(np.int64(u * np.float64(n)), n - 1)


@kernel(
    "void(uint64, int64, int64, uint64[::1], int32[::1])",
    "void(uint64, int64, int64, uint64[::1], int64[::1])",
)
def _find(key: np.uint64, n: int, k: int, members: Uint64s, indices: Array) -> None:
    """Write the subset to `indices`, which has k + 1 elements; `members` is a map with a bit for each of the n."""
    members[:] = _ZERO
    numbers = np.empty(CHUNK, np.int64)
    left = min(k, n - k)
    chunk = 0
    while left > 0:
        _numbers(key, n, chunk, numbers)
        chunk += 1
        for at in range(CHUNK):
            if left == 0:
                break
            number = np.uint64(numbers[at])
            word, bit = number >> _6, _ONE << (number & _63)
            before = members[word]
            left -= np.int64((before & bit) == _ZERO)
            members[word] = before | bit
    invert = np.uint64(0) if k <= n - k else _ALL
    if n & 63:  # no number is behind n: as the members of the complement these are not left over
        members[-1] |= (invert >> np.uint64(n & 63)) << np.uint64(n & 63)
    found = start = _ZERO
    for place in range(members.size):
        bits = members[place] ^ invert
        # Most words have few bits: two are stored whether they are there or not, as nobody could guess that.
        for _ in range(2):
            indices[found] = np.int64(start + _lowest(bits))
            found += np.uint64(bits != _ZERO)
            bits &= bits - _ONE
        while bits != _ZERO:
            indices[found] = np.int64(start + _lowest(bits))
            found += _ONE
            bits &= bits - _ONE
        start += _64


@helper
def _count_below(indices: Array, number: int) -> int:
    """Count the ascending `indices` that are below `number`."""
    low, high = 0, indices.size
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(
    "boolean(float32[::1], int32[::1], int32[::1], float32[::1])",
    "boolean(float32[::1], int32[::1], int64[::1], float32[::1])",
)
def _gather(x: Float32s, bits: Int32s, indices: Array, values: Float32s) -> bool:
    """Copy the chosen elements to `values`; return whether all of `x` is finite.

    Both are done block by block, so that a block is read from memory once.
    """
    part = bits.size // (_PARTS * _BLOCK) * _BLOCK
    at = np.empty(_PARTS, np.int64)
    for number in range(_PARTS):
        at[number] = _count_below(indices, number * part)
    largest = np.int32(0)
    for first in range(0, part, _BLOCK):
        last = first + _BLOCK
        largest = max(largest, largest_of_four(bits, part, first, last, _MAGNITUDE, _NO_FLIP))
        for number in range(_PARTS):
            kept, end = at[number], number * part + last
            while kept < indices.size and indices[kept] < end:
                values[kept] = x[indices[kept]]
                kept += 1
            at[number] = kept
    for kept in range(_count_below(indices, _PARTS * part), indices.size):
        values[kept] = x[indices[kept]]
    largest = max(largest, largest_of(bits[_PARTS * part :], _MAGNITUDE, _NO_FLIP))
    return bool(largest < _INFINITY)


def subset(key: int, n: int, k: int, device: torch.device) -> torch.Tensor:
    indices = torch.empty(k + 1, dtype=torch.int32 if n < _FITS else torch.int64)
    _find(np.uint64(key), n, k, _words((n + 63) // 64), indices.numpy())
    return indices[:k]


def _words(count: int) -> Uint64s:
    """Return this thread's buffer for the map; allocating one for every unit would take longer than the draws."""
    words: Uint64s | None = getattr(_room, "words", None)
    if words is None or words.size < count:
        words = _room.words = np.empty(count, np.uint64)
    return words[:count]


def take(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> bool:
    elements = x.numpy()
    return bool(_gather(elements, elements.view(np.int32), indices.numpy(), values.numpy()))
