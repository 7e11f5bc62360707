"""Read and write the index part of sparse payloads, with a loop for each coding of
`compressors.sparsification.positions`.

Positions are processed in ascending order, so that the tensor is traversed from front to back.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Int64s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack, unpack

_LARGEST_PARAMETER = 31
_ONE = np.uint64(1)


@helper
def _bits(indices: Int64s, parameter: int) -> int:
    """Return the number of bits in the Golomb-Rice codes of the gaps."""
    total = indices.size * (1 + parameter)
    if indices.size:
        total += indices[0] >> parameter
    for at in range(1, indices.size):
        total += (indices[at] - indices[at - 1] - 1) >> parameter
    return total


@kernel("UniTuple(int64, 2)(int64[::1])")
def _rice(indices: Int64s) -> tuple[int, int]:
    parameter = 0
    if indices.size:
        mean = (indices[-1] + 1) // indices.size
        while parameter < _LARGEST_PARAMETER and (mean >> parameter) > 1:
            parameter += 1
    best = _bits(indices, parameter)
    while parameter > 0:
        bits = _bits(indices, parameter - 1)
        if bits > best:
            break
        best = bits
        parameter -= 1
    while parameter < _LARGEST_PARAMETER:
        bits = _bits(indices, parameter + 1)
        if bits >= best:
            break
        best = bits
        parameter += 1
    return parameter, best


@kernel("void(int64[::1], uint8[::1])")
def _write_int32(indices: Int64s, payload: Uint8s) -> None:
    for at in range(indices.size):
        for byte in range(4):
            payload[4 * at + byte] = np.uint8(indices[at] >> (8 * byte))


@kernel("boolean(uint8[::1], int64, int64[::1])")
def _read_int32(payload: Uint8s, n: int, indices: Int64s) -> bool:
    before = -1
    for at in range(indices.size):
        index = 0
        for byte in range(4):
            index |= np.int64(payload[4 * at + byte]) << (8 * byte)
        if index <= before or index >= n:
            return False
        indices[at] = index
        before = index
    return True


@kernel("void(int64[::1], uint8[::1])")
def _write_bitmap(indices: Int64s, payload: Uint8s) -> None:
    payload[:] = 0
    for at in range(indices.size):
        payload[indices[at] >> 3] |= np.uint8(1 << (indices[at] & 7))


@kernel("boolean(uint8[::1], int64, int64[::1])")
def _read_bitmap(payload: Uint8s, n: int, indices: Int64s) -> bool:
    """Read positions from a bitmap into `indices`; return False unless it has that many bits, all before bit `n`."""
    found = 0
    for place in range(payload.size):
        byte = payload[place]
        if byte == 0:
            continue
        for bit in range(8):
            if (byte >> bit) & 1:
                if found == indices.size or 8 * place + bit >= n:
                    return False
                indices[found] = 8 * place + bit
                found += 1
    return bool(found == indices.size)


@kernel("void(int64[::1], int64, uint8[::1])")
def _write_delta(indices: Int64s, parameter: int, payload: Uint8s) -> None:
    """Write delta codes: collect their bits in a word, and store its whole bytes."""
    word = np.uint64(0)
    filled = 0
    position = 0
    low = (1 << parameter) - 1
    before = -1
    for at in range(indices.size):
        gap = indices[at] - before - 1
        before = indices[at]
        zeros = gap >> parameter
        while zeros >= 24:
            filled += 24
            zeros -= 24
            while filled >= 8:
                payload[position] = np.uint8(word)
                position += 1
                word >>= np.uint64(8)
                filled -= 8
        code = (np.uint64(gap & low) << _ONE) | _ONE
        # 7 bits left over, 23 zeros and 32 bits of a code at most: 62
        word |= code << np.uint64(filled + zeros)
        filled += zeros + 1 + parameter
        while filled >= 8:
            payload[position] = np.uint8(word)
            position += 1
            word >>= np.uint64(8)
            filled -= 8
    if filled:
        payload[position] = np.uint8(word)


@kernel("int64(uint8[::1], int64, int64, int64[::1])")
def _read_delta(payload: Uint8s, n: int, parameter: int, indices: Int64s) -> int:
    """Read as many positions from delta codes as `indices` has elements; return the number of bytes read.

    Return -1 if `payload` does not hold so many.
    """
    word = np.uint64(0)
    filled = 0
    position = 0
    low = (_ONE << np.uint64(parameter)) - _ONE
    before = -1
    for at in range(indices.size):
        zeros = 0
        while True:
            while filled <= 48 and position < payload.size:
                word |= np.uint64(payload[position]) << np.uint64(filled)
                position += 1
                filled += 8
            if word != 0:
                break
            zeros += filled
            filled = 0
            if position == payload.size:
                return -1
        while not word & _ONE:
            word >>= _ONE
            zeros += 1
            filled -= 1
        word >>= _ONE
        filled -= 1
        while filled < parameter and position < payload.size:
            word |= np.uint64(payload[position]) << np.uint64(filled)
            position += 1
            filled += 8
        if filled < parameter or zeros > n >> parameter:
            return -1
        before += 1 + ((zeros << parameter) | np.int64(word & low))
        word >>= np.uint64(parameter)
        filled -= parameter
        if before >= n:
            return -1
        indices[at] = before
    position -= filled >> 3
    # what is left of the last byte, without the bytes behind it
    rest = word & ((_ONE << np.uint64(filled & 7)) - _ONE)
    return -1 if rest else position


@kernel(
    "void(int32[::1], float32[::1], float32, float32[::1])",
    "void(int64[::1], float32[::1], float32, float32[::1])",
)
def _add_at(indices: Array, values: Float32s, weight: np.float32, out: Float32s) -> None:
    for at in range(indices.size):
        out[indices[at]] += values[at] * weight


@kernel("void(int64[::1], int64, int64, uint8[::1])")
def _write_packed(indices: Int64s, elements: int, width: int, payload: Uint8s) -> None:
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    position = 0
    for start in range(0, indices.size, BLOCK):
        count = min(BLOCK, indices.size - start)
        for at in range(count):
            codes[at] = np.uint16(np.uint64(indices[start + at]) % np.uint64(elements))
        position = pack(codes, count, width, staged, payload, position)


@kernel("boolean(uint8[::1], int64, int64, int64, int64[::1])")
def _read_packed(payload: Uint8s, elements: int, kept: int, width: int, indices: Int64s) -> bool:
    codes, staged = np.empty(BLOCK, np.uint16), np.empty(BLOCK // 4 + 1, np.uint64)
    position = first = in_block = 0
    before = -1
    for start in range(0, indices.size, BLOCK):
        count = min(BLOCK, indices.size - start)
        position = unpack(payload, position, count, width, staged, codes)
        for at in range(count):
            if in_block == kept:
                first, in_block, before = first + elements, 0, -1
            code = np.int64(codes[at])
            if code <= before or code >= elements:
                return False
            indices[start + at] = first + code
            before, in_block = code, in_block + 1
    padding = indices.size * width % 8
    return padding == 0 or payload[payload.size - 1] >> np.uint8(padding) == 0


def rice(indices: torch.Tensor) -> tuple[int, int]:
    parameter, bits = _rice(indices.numpy())
    return int(parameter), int(bits)


def write_int32(indices: torch.Tensor, payload: torch.Tensor) -> None:
    _write_int32(indices.numpy(), payload.numpy())


def read_int32(payload: torch.Tensor, n: int) -> torch.Tensor | None:
    indices = torch.empty(len(payload) // 4, dtype=torch.int64)
    return indices if _read_int32(payload.numpy(), n, indices.numpy()) else None


def write_bitmap(indices: torch.Tensor, payload: torch.Tensor) -> None:
    _write_bitmap(indices.numpy(), payload.numpy())


def read_bitmap(payload: torch.Tensor, n: int, count: int) -> torch.Tensor | None:
    indices = torch.empty(count, dtype=torch.int64)
    return indices if _read_bitmap(payload.numpy(), n, indices.numpy()) else None


def write_delta(indices: torch.Tensor, parameter: int, payload: torch.Tensor) -> None:
    _write_delta(indices.numpy(), parameter, payload.numpy())


def read_delta(
    payload: torch.Tensor, n: int, count: int, parameter: int, is_whole: bool = False
) -> tuple[torch.Tensor | None, int]:
    indices = torch.empty(count, dtype=torch.int64)
    length = int(_read_delta(payload.numpy(), n, parameter, indices.numpy()))
    return (None, 0) if length < 0 or (is_whole and length < len(payload)) else (indices, length)


def add_at(indices: torch.Tensor, values: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    _add_at(indices.numpy(), values.numpy(), weight, out.numpy())


def write_packed(indices: torch.Tensor, elements: int, width: int, payload: torch.Tensor) -> None:
    _write_packed(indices.numpy(), elements, width, payload.numpy())


def read_packed(payload: torch.Tensor, number: int, elements: int, kept: int, width: int) -> torch.Tensor | None:
    indices = torch.empty(number * kept, dtype=torch.int64)
    return indices if _read_packed(payload.numpy(), elements, kept, width, indices.numpy()) else None
