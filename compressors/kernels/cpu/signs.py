"""Encode signs in one pass: sign bits become payload bits, followed by two flags (all zero; not finite).

`reference.signs` is the same in plain torch.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Float32s, Float64s, Int32s, Uint8s, array
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK, pack_bits
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.scales import INFINITY, MAGNITUDE, NAN, bits_of, factor_of, is_scale, load, store
from compressors.kernels.cpu.sums import CHUNK, LANES, combine, fold


@helper
def _read_signs(bits: Int32s, minus: Uint8s) -> tuple[np.int32, np.int32]:
    """Write the sign bit of every element to `minus`, as a byte; return the smallest and largest magnitude, as bits."""
    smallest = MAGNITUDE
    largest = np.int32(0)
    for index in range(bits.size):
        magnitude = np.int32(bits[index] & MAGNITUDE)
        smallest = min(smallest, magnitude)
        largest = max(largest, magnitude)
        minus[index] = np.uint8(np.uint32(bits[index]) >> np.uint32(31))
    return smallest, largest


@helper
def _sign_zeros(bits: Int32s, first: int, stream: np.uint64, fair: np.uint32, minus: Uint8s) -> None:
    """Give zeros signs: plus, or if `fair` is 1 random ones.

    Element i of the tensor gets bit i mod 32 of draw i // 32; 32 divides `first`.
    """
    low, high = halves(stream)
    for start in range(0, bits.size, 32):
        coins = draw(low, high, np.uint32((first + start) >> 5))
        some = bits[start : start + 32]
        signs = minus[start : start + 32]
        for index in range(some.size):
            zero = np.uint32((some[index] & MAGNITUDE) == 0)
            coin = np.uint32((coins >> np.uint32(index)) & zero & fair)
            signs[index] = np.uint8(np.uint32(signs[index]) & np.uint32(np.uint32(1) - zero)) | np.uint8(coin)


@helper
def _write_block(
    bits: Int32s, first: int, stream: np.uint64, fair: np.uint32, minus: Uint8s, payload: Uint8s
) -> np.int32:
    """Write the signs of up to BLOCK elements, of which the first has index `first`, into exactly the bytes that they
    need.

    Zeros have random signs if `fair` is 1, else plus. Return the largest magnitude, as bits.
    """
    smallest, largest = _read_signs(bits, minus)
    if smallest == 0:
        _sign_zeros(bits, first, stream, fair, minus)
    minus[bits.size : (bits.size + 7) >> 3 << 3] = 0
    pack_bits(minus.view(np.uint64), payload)
    return largest


@helper
def _write_flags(count: int, largest: np.int32, payload: Uint8s) -> None:
    """Write the two flags (all zero; not finite) behind the `count` signs; clear the signs if a flag is set."""
    flag = count if largest == 0 else count + 1
    if largest == 0 or largest >= INFINITY:
        payload[:] = 0
        payload[flag >> 3] = np.uint8(1 << (flag & 7))
    else:
        payload[(count + 7) >> 3 :] = 0


@kernel("void(int32[::1], uint64, uint8[::1])")
def _encode(bits: Int32s, key: np.uint64, payload: Uint8s) -> None:
    minus = np.empty(BLOCK, np.uint8)
    stream = stream_bits(key, np.uint64(0))
    largest = np.int32(0)
    for first in range(0, bits.size, BLOCK):
        last = min(first + BLOCK, bits.size)
        part = payload[first >> 3 : (last + 7) >> 3]
        largest = max(largest, _write_block(bits[first:last], first, stream, np.uint32(1), minus, part))
    _write_flags(bits.size, largest, payload)


@kernel("void(float32[::1], int32[::1], float32[::1], float32, float32, uint64, uint8[::1])")
def _encode_momentum(
    momentum: Float32s, bits: Int32s, x: Float32s, beta: np.float32, gamma: np.float32, key: np.uint64, payload: Uint8s
) -> None:
    """Update the momentum with `x` and encode its signs; `bits` is a view of `momentum`."""
    minus = np.empty(BLOCK, np.uint8)
    stream = stream_bits(key, np.uint64(0))
    largest = np.int32(0)
    for first in range(0, x.size, BLOCK):
        last = min(first + BLOCK, x.size)
        for index in range(first, last):
            momentum[index] = momentum[index] * beta + x[index] * gamma
        part = payload[first >> 3 : (last + 7) >> 3]
        largest = max(largest, _write_block(bits[first:last], first, stream, np.uint32(1), minus, part))
    _write_flags(x.size, largest, payload)


@helper
def _sum(x: Float32s, euclidean: bool, lanes: Float64s) -> float:
    """Return the sum of |x|, or if `euclidean` of x^2, over one chunk, in the order of `sums`."""
    lanes[:] = 0.0
    whole = x.size // LANES * LANES
    for row in range(0, whole, LANES):
        for lane in range(LANES):
            size = abs(np.float64(x[row + lane]))
            lanes[lane] += size * size if euclidean else size
    for index in range(whole, x.size):
        size = abs(np.float64(x[index]))
        lanes[index - whole] += size * size if euclidean else size
    return fold(lanes)


@kernel("void(float32[::1], int32[::1], uint64, boolean, uint32, uint8[::1])")
def _encode_scaled(
    x: Float32s, bits: Int32s, key: np.uint64, euclidean: bool, fair: np.uint32, payload: Uint8s
) -> None:
    minus = np.empty(BLOCK, np.uint8)
    lanes = np.empty(LANES)
    totals = np.empty((x.size + CHUNK - 1) // CHUNK)
    stream = stream_bits(key, np.uint64(0))
    signs = payload[4:]
    largest = np.int32(0)
    for start in range(0, x.size, CHUNK):
        stop = min(start + CHUNK, x.size)
        totals[start // CHUNK] = _sum(x[start:stop], euclidean, lanes)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            part = signs[first >> 3 : (last + 7) >> 3]
            largest = max(largest, _write_block(bits[first:last], first, stream, fair, minus, part))
    mean = combine(totals, lanes) / max(1, x.size)
    scale = NAN if largest >= INFINITY else bits_of(np.float32(math.sqrt(mean) if euclidean else mean))
    if scale == NAN or scale == 0:
        signs[:] = 0
    store(payload, 0, scale)


@helper
def _add_signs(signs: Uint8s, factor: np.float32, out: Float32s) -> None:
    """Compute out[i] += `factor` if bit i is 0, and -`factor` if it is 1."""
    staged = np.zeros(BLOCK // 8 + 4, np.uint8)
    words = staged.view(np.uint32)
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        first = start >> 3
        for byte in range(((stop + 7) >> 3) - first):
            staged[byte] = signs[first + byte]
        whole = (stop - start) >> 5
        for word in range(whole):
            bits = words[word]
            part = out[start + (word << 5) : start + (word << 5) + 32]
            for index in range(32):
                bit = np.int32((bits >> np.uint32(index)) & np.uint32(1))
                part[index] += factor * np.float32(np.int32(1 - bit - bit))
        part = out[start + (whole << 5) : stop]
        for index in range(part.size):
            bit = np.int32((words[whole] >> np.uint32(index)) & np.uint32(1))
            part[index] += factor * np.float32(np.int32(1 - bit - bit))


@kernel("boolean(uint8[::1], float32, float32[::1])")
def _decode_add(payload: Uint8s, weight: np.float32, out: Float32s) -> bool:
    count = out.size
    tail = 0
    for byte in range(count >> 3, payload.size):
        tail |= np.int64(payload[byte]) << (8 * (byte - (count >> 3)))
    tail >>= count & 7
    if tail == 0:
        _add_signs(payload, weight, out)
    elif tail == 2:
        for index in range(count):
            out[index] = np.float32(np.nan)
    return bool(tail <= 2)


@kernel("boolean(uint8[::1], float64, float32[::1])")
def _decode_add_scaled(payload: Uint8s, weight: float, out: Float32s) -> bool:
    scale = load(payload, 0)
    if not is_scale(scale):
        return False
    _add_signs(payload[4:], factor_of(scale, weight), out)
    return True


def encode(x: torch.Tensor, key: int, payload: torch.Tensor) -> None:
    _encode(x.numpy().view(np.int32), np.uint64(key), payload.numpy())


def encode_momentum(momentum: torch.Tensor, x: torch.Tensor, beta: float, key: int, payload: torch.Tensor) -> None:
    kept = momentum.numpy()
    gamma = np.float32(1.0 - beta)
    _encode_momentum(kept, kept.view(np.int32), x.numpy(), np.float32(beta), gamma, np.uint64(key), payload.numpy())


def encode_scaled(x: torch.Tensor, key: int, euclidean: bool, fair: bool, payload: torch.Tensor) -> None:
    values = x.numpy()
    _encode_scaled(values, values.view(np.int32), np.uint64(key), euclidean, np.uint32(fair), payload.numpy())


def decode_add(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(array(payload), np.float32(weight), array(out)))


def decode_add_scaled(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add_scaled(array(payload), weight, array(out)))
