"""QSGD's levels as a stream of Elias codes; `reference.elias` is the same in plain torch."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.elias_reader import GUARD, STAGE, add_stream
from compressors.kernels.cpu.elias_writer import write_stream
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s
from compressors.kernels.cpu.primitives.jit import kernel
from compressors.kernels.cpu.primitives.packing import BLOCK
from compressors.kernels.cpu.primitives.streams import stream_bits
from compressors.kernels.cpu.qsgd import scale_of
from compressors.kernels.cpu.scales import NAN, divisor_of, factor_of, is_scale, load, store


@kernel("int64(float32[::1], int32[::1], uint64, int64, int64, int64, boolean, uint8[::1])")
def _encode(
    x: Float32s, bits: Int32s, key: np.uint64, levels: int, bucket: int, field: int, euclidean: bool, payload: Uint8s
) -> int:
    codes = np.zeros(BLOCK, np.uint16)
    staged = np.empty(BLOCK, np.uint64)
    sums = np.empty(8, np.float64)
    buckets = (x.size + bucket - 1) // bucket
    position = (4 + field) * buckets
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        scale = scale_of(x[start:stop], bits[start:stop], euclidean, sums)
        store(payload, number, scale)
        begin = position
        if scale != NAN:
            divisor = divisor_of(scale)
            stream = stream_bits(key, np.uint64(number))
            position = write_stream(
                x[start:stop], bits[start:stop], stream, divisor, levels, codes, staged, payload, position
            )
        for byte in range(field):
            payload[4 * buckets + field * number + byte] = np.uint8((position - begin) >> (8 * byte))
    return position


@kernel("boolean(uint8[::1], int64, int64, int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, levels: int, bucket: int, field: int, weight: float, out: Float32s) -> bool:
    staged = np.empty(STAGE + GUARD, np.uint64)
    buckets = (out.size + bucket - 1) // bucket
    position = (4 + field) * buckets
    if payload.size < position:
        return False
    for number in range(buckets):
        scale = load(payload, number)
        size = 0
        for byte in range(field):
            size |= np.int64(payload[4 * buckets + field * number + byte]) << (8 * byte)
        if not is_scale(scale) or size < 0 or size > payload.size - position:
            return False
        factor = factor_of(scale, weight)
        start = number * bucket
        part = out[start : min(start + bucket, out.size)]
        if scale == NAN:
            if size:
                return False
            part += factor
        elif not add_stream(payload[position : position + size], levels, factor, staged, part):
            return False
        position += size
    return bool(position == payload.size)


def encode(
    x: torch.Tensor, key: int, levels: int, bucket: int, field: int, euclidean: bool, payload: torch.Tensor
) -> int:
    values = x.numpy()
    bits = values.view(np.int32)
    return int(_encode(values, bits, np.uint64(key), levels, bucket, field, euclidean, payload.numpy()))


def decode_add(payload: torch.Tensor, levels: int, bucket: int, field: int, weight: float, out: torch.Tensor) -> bool:
    return bool(_decode_add(payload.numpy(), levels, bucket, field, weight, out.numpy()))
