"""IntSGD in one pass, for integers of 8 and of 32 bits; `reference.intsgd` is the same in plain torch.

The scale is given as a power of two and a factor, since their product may exceed float32 if gradients are denormal.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Int32s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.primitives.packing import BLOCK
from compressors.kernels.cpu.primitives.rounding import apply_sign, round_stochastically
from compressors.kernels.cpu.primitives.streams import draw, halves, stream_bits
from compressors.kernels.cpu.scales import INFINITY, largest

STREAM = 1 << 16
"""Elements that share one stream of random numbers; a multiple of BLOCK."""


@helper
def _round_block(
    x: Float32s,
    bits: Int32s,
    power: np.float32,
    factor: np.float32,
    limit: np.float32,
    low: np.uint32,
    high: np.uint32,
    counter: np.uint32,
    levels: Array,
) -> None:
    """Compute levels[i] = sign(x[i]) * floor(min(|x[i]| * power * factor, limit) + u), u uniform in [0, 1) with 31
    bits.
    """
    for index in range(x.size):
        exact = min(abs(x[index]) * power * factor, limit)
        level = round_stochastically(exact, draw(low, high, np.uint32(counter + np.uint32(index))))
        levels[index] = apply_sign(level, bits[index])


@kernel(
    "boolean(float32[::1], int32[::1], uint64, float32, float32, float32, int8[::1], uint8[::1])",
    "boolean(float32[::1], int32[::1], uint64, float32, float32, float32, int32[::1], uint8[::1])",
)
def _encode(
    x: Float32s,
    bits: Int32s,
    key: np.uint64,
    power: np.float32,
    factor: np.float32,
    limit: np.float32,
    levels: Array,
    payload: Uint8s,
) -> bool:
    """Write the payload of `x`; return False if `x` holds NaN or Inf.

    `levels` is a buffer for BLOCK integers of the payload's width.
    """
    staged = levels.view(np.uint8)
    width = staged.size // BLOCK
    for first in range(0, x.size, BLOCK):
        last = min(first + BLOCK, x.size)
        if largest(bits[first:last]) >= INFINITY:
            return False
        low, high = halves(stream_bits(key, np.uint64(first // STREAM)))
        counter = np.uint32(first % STREAM)
        block = levels[: last - first]
        _round_block(x[first:last], bits[first:last], power, factor, limit, low, high, counter, block)
        part = payload[first * width : last * width]
        for byte in range(part.size):
            part[byte] = staged[byte]
    return True


@kernel("void(uint8[::1], float64, int8[::1], float32[::1])", "void(uint8[::1], float64, int32[::1], float32[::1])")
def _decode_add(payload: Uint8s, factor: float, levels: Array, out: Float32s) -> None:
    """Add `factor` times the integers in `payload` to `out`; `levels` is a buffer for BLOCK of these integers."""
    staged = levels.view(np.uint8)
    width = staged.size // BLOCK
    for first in range(0, out.size, BLOCK):
        block = out[first : min(first + BLOCK, out.size)]
        part = payload[first * width : (first + block.size) * width]
        for byte in range(part.size):
            staged[byte] = part[byte]
        for index in range(block.size):
            block[index] += np.float32(np.float64(levels[index]) * factor)


def _make_block(bits: int) -> Array:
    """Return an empty buffer for the integers of one block."""
    return np.empty(BLOCK, np.int8 if bits == 8 else np.int32)


def encode(
    x: torch.Tensor, key: int, power: float, factor: float, limit: int, bits: int, payload: torch.Tensor
) -> bool:
    values = x.numpy()
    scale = np.float32(power), np.float32(factor), np.float32(limit)
    return bool(_encode(values, values.view(np.int32), np.uint64(key), *scale, _make_block(bits), payload.numpy()))


def decode_add(payload: torch.Tensor, factor: float, bits: int, out: torch.Tensor) -> None:
    _decode_add(payload.numpy(), factor, _make_block(bits), out.numpy())
