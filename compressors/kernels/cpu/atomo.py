"""ATOMO on the elements of a tensor, in a few passes; `kernels.reference.atomo` says what is computed."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Int64s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.sums import CHUNK, LANES, combine, fold

_MAGNITUDE = np.int32(0x7FFFFFFF)
_BLOCK = 4096
_RESOLUTION = np.float32(2.0**31)


@helper
def _below(bits: Int32s, threshold: np.int32, staged: Int32s) -> tuple[np.int32, np.int32]:
    """Write magnitudes below `threshold` to `staged`, with zeros for the others.

    Return the number of the others, and the largest magnitude below `threshold`.
    """
    above, largest = np.int32(0), np.int32(0)
    for index in range(bits.size):
        size = np.int32(bits[index] & _MAGNITUDE)
        is_below = np.int32(size < threshold)
        size = np.int32(size & np.int32(-is_below))
        above += np.int32(np.int32(1) - is_below)
        largest = max(largest, size)
        staged[index] = size
    return above, largest


@kernel("Tuple((int64, float64, int32))(int32[::1], int32)")
def _split_at(bits: Int32s, threshold: np.int32) -> tuple[int, float, np.int32]:
    totals = np.empty((bits.size + CHUNK - 1) // CHUNK)
    lanes = np.empty(LANES)
    staged = np.zeros(CHUNK, np.int32)
    values = staged.view(np.float32)
    count = 0
    largest = np.int32(0)
    for chunk in range(totals.size):
        first = chunk * CHUNK
        part = bits[first : min(first + CHUNK, bits.size)]
        above, most = _below(part, threshold, staged)
        staged[part.size :] = 0
        count += above
        largest = max(largest, most)
        lanes[:] = 0.0
        for row in range(0, CHUNK, 4 * LANES):  # four rows at a time, in their order: fewer lanes are stored
            for lane in range(LANES):
                total = lanes[lane] + np.float64(values[row + lane])
                total += np.float64(values[row + LANES + lane])
                total += np.float64(values[row + 2 * LANES + lane])
                lanes[lane] = total + np.float64(values[row + 3 * LANES + lane])
        totals[chunk] = fold(lanes)
    return count, combine(totals, lanes), largest


@helper
def _flag(
    x: Float32s, bits: Int32s, scale: np.float32, threshold: np.int32, low: np.uint32, high: np.uint32, kept: Uint8s
) -> None:
    """Compute kept[i] = whether x[i] is drawn. A quotient of 1 and above is cut off to what fits 31 bits, and such
    elements are kept for being at least `threshold`."""
    for index in range(x.size):
        p = min(abs(x[index]) / scale, np.float32(1.0)) * _RESOLUTION
        cut = np.int32(min(p, np.float32(2147483520.0)))
        u = np.int32(draw(low, high, np.uint32(index)) >> np.uint32(1))
        kept[index] = np.uint8((u < cut) | ((bits[index] & _MAGNITUDE) >= threshold))


@kernel("int64(float32[::1], int32[::1], uint64, float32, int32, int64[::1])")
def _draw_kept(x: Float32s, bits: Int32s, key: np.uint64, scale: np.float32, threshold: np.int32, found: Int64s) -> int:
    """Write the positions of the drawn elements to `found` until it is full; return the number of all of them."""
    kept = np.zeros(_BLOCK, np.uint8)
    words = kept.view(np.uint64)
    count = 0
    for first in range(0, x.size, _BLOCK):
        last = min(first + _BLOCK, x.size)
        low, high = halves(stream_bits(key, np.uint64(first // _BLOCK)))
        kept[last - first :] = 0
        _flag(x[first:last], bits[first:last], scale, threshold, low, high, kept)
        for word in range(words.size):
            if words[word] == 0:
                continue
            for place in range(8 * word, 8 * word + 8):
                if kept[place]:
                    if count < found.size:
                        found[count] = first + place
                    count += 1
    return count


@kernel("void(uint8[::1], uint8[::1])")
def _write_flags(flags: Uint8s, payload: Uint8s) -> None:
    payload[:] = 0
    for index in range(flags.size):
        payload[index >> 3] |= np.uint8(flags[index] << (index & 7))


@kernel("boolean(uint8[::1], uint8[::1])")
def _read_flags(payload: Uint8s, flags: Uint8s) -> bool:
    for index in range(flags.size):
        flags[index] = (payload[index >> 3] >> (index & 7)) & 1
    return flags.size & 7 == 0 or payload[-1] >> (flags.size & 7) == 0


def split_at(x: torch.Tensor, threshold: int) -> tuple[int, float, int]:
    count, total, largest = _split_at(x.numpy().view(np.int32), np.int32(threshold))
    return int(count), float(total), int(largest)


def draw_kept(x: torch.Tensor, key: int, scale: float, threshold: int, expected: float) -> torch.Tensor:
    values = x.numpy()
    room = min(len(x), int(expected + 8.0 * expected**0.5) + 64)
    while True:
        found = np.empty(room, np.int64)
        count = int(
            _draw_kept(values, values.view(np.int32), np.uint64(key), np.float32(scale), np.int32(threshold), found)
        )
        if count <= room:
            return torch.from_numpy(found[:count])
        room = count  # once in a lifetime: eight standard deviations above the mean


def write_flags(flags: torch.Tensor, payload: torch.Tensor) -> None:
    _write_flags(flags.to(torch.uint8).numpy(), payload.numpy())


def read_flags(payload: torch.Tensor, count: int) -> torch.Tensor | None:
    flags = torch.empty(count, dtype=torch.uint8)
    return flags.bool() if _read_flags(payload.numpy(), flags.numpy()) else None
