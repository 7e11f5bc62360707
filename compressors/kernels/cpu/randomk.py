"""Random subsets in time k + n / 64: members are bits of a map of the tensor (3 % of its bytes), which is then
read in ascending order. `kernels.reference.randomk` defines which subset a key stands for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from compressors.kernels.cpu.jit import helper, kernel
from compressors.kernels.cpu.streams import draw, stream_bits

CHUNK = 1024
_FITS = 2**31
_RESOLUTION = 2.0**-53
_ONE = np.uint64(1)
_ALL = np.uint64(2**64 - 1)
_32 = np.uint64(32)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_BLOCK = 8192


def _trailing_zeros(context: Any, bits: Any) -> Any:
    """The place of the lowest set bit of a 64-bit word; 64 where there is none. One instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), generate


_lowest: Any = intrinsic(_trailing_zeros)


@helper
def _numbers(key: np.uint64, n: int, chunk: int, numbers: npt.NDArray[np.int64]) -> None:
    """The draws of one chunk."""
    upper = stream_bits(key, np.uint64(2 * chunk))
    lower = stream_bits(key, np.uint64(2 * chunk + 1))
    upper_low, upper_high = np.uint32(upper), np.uint32(upper >> _32)
    lower_low, lower_high = np.uint32(lower), np.uint32(lower >> _32)
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


@helper
def _find(key: np.uint64, n: int, k: int, members: npt.NDArray[np.uint64], indices: npt.NDArray[Any]) -> None:
    """`members` are zeros, a bit for each number; `indices` has room for k and one more."""
    numbers = np.empty(CHUNK, np.int64)
    left = min(k, n - k)
    chunk = 0
    while left > 0:
        _numbers(key, n, chunk, numbers)
        chunk += 1
        for at in range(CHUNK):
            if left == 0:
                break
            word = numbers[at] >> 6
            bit = _ONE << np.uint64(numbers[at] & 63)
            left -= np.int64((members[word] & bit) == 0)
            members[word] |= bit
    invert = np.uint64(0) if k <= n - k else _ALL
    if n & 63:  # no number is behind n: as the members of the complement these are not left over
        members[-1] |= (invert >> np.uint64(n & 63)) << np.uint64(n & 63)
    found = 0
    for word in range(members.size):
        bits = members[word] ^ invert
        # Most words have few bits: two are stored whether they are there or not, as nobody could guess that.
        for _ in range(2):
            indices[found] = 64 * word + _lowest(bits)
            found += np.int64(bits != 0)
            bits &= bits - _ONE
        while bits != 0:
            indices[found] = 64 * word + _lowest(bits)
            found += 1
            bits &= bits - _ONE


@kernel("void(uint64, int64, int64, uint64[::1], int32[::1])")
def _subset32(key: np.uint64, n: int, k: int, members: npt.NDArray[np.uint64], indices: npt.NDArray[np.int32]) -> None:
    _find(key, n, k, members, indices)


@kernel("void(uint64, int64, int64, uint64[::1], int64[::1])")
def _subset64(key: np.uint64, n: int, k: int, members: npt.NDArray[np.uint64], indices: npt.NDArray[np.int64]) -> None:
    _find(key, n, k, members, indices)


@helper
def _gather(
    x: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    indices: npt.NDArray[Any],
    values: npt.NDArray[np.float32],
) -> bool:
    """Gathers from every block while it is in the cache from being searched for NaN and Inf."""
    largest = np.int32(0)
    at = 0
    for first in range(0, bits.size, _BLOCK):
        last = min(first + _BLOCK, bits.size)
        for index in range(first, last):
            largest = max(largest, np.int32(bits[index] & _MAGNITUDE))
        stop = at
        while stop + 16 <= indices.size and indices[stop + 15] < last:
            stop += 16
        while stop < indices.size and indices[stop] < last:
            stop += 1
        for kept in range(at, stop):
            values[kept] = x[indices[kept]]
        at = stop
    return bool(largest < _INFINITY)


@kernel("boolean(float32[::1], int32[::1], int32[::1], float32[::1])")
def _take32(
    x: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
) -> bool:
    return bool(_gather(x, bits, indices, values))


@kernel("boolean(float32[::1], int32[::1], int64[::1], float32[::1])")
def _take64(
    x: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    indices: npt.NDArray[np.int64],
    values: npt.NDArray[np.float32],
) -> bool:
    return bool(_gather(x, bits, indices, values))


def subset(key: int, n: int, k: int, device: torch.device) -> torch.Tensor:
    small = n < _FITS
    indices = torch.empty(k + 1, dtype=torch.int32 if small else torch.int64)
    find = _subset32 if small else _subset64
    find(np.uint64(key), n, k, np.zeros((n + 63) // 64, np.uint64), indices.numpy())
    return indices[:k]


def take(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> bool:
    elements = x.numpy()
    gather = _take32 if indices.dtype is torch.int32 else _take64
    return bool(gather(elements, elements.view(np.int32), indices.numpy(), values.numpy()))
