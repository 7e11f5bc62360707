"""Decode bytes that stand for levels in one pass; `reference.byte_levels` is the same in plain torch."""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu.primitives.arrays import Array, Float32s, Uint8s, array
from compressors.kernels.cpu.primitives.jit import kernel
from compressors.kernels.cpu.scales import factor_of, is_scale, load


@kernel("boolean(uint8[::1], float32[::1], int32, int64, float64, float32[::1])")
def _decode_add(payload: Uint8s, levels: Float32s, top: np.int32, bucket: int, weight: float, out: Float32s) -> bool:
    """Add weight * Q(x), decoded from `payload` of the right length, to `out`.

    Return False if no encoder can have written the payload.
    """
    buckets = (out.size + bucket - 1) // bucket
    codes = payload[4 * buckets :]
    above = np.int32(0)
    for number in range(buckets):
        scale = load(payload, number)
        if not is_scale(scale):
            return False
        factor = factor_of(scale, weight)
        start = number * bucket
        part = out[start : min(start + bucket, out.size)]
        sent = codes[start : start + part.size]
        for index in range(part.size):
            above = max(above, np.int32(sent[index] & np.uint8(127)))
            part[index] += factor * levels[sent[index]]
    return bool(above <= top)


def decode_add(
    payload: torch.Tensor | Array, levels: Float32s, top: int, bucket: int, weight: float, out: torch.Tensor | Array
) -> bool:
    return bool(_decode_add(array(payload), levels, np.int32(top), bucket, weight, array(out)))
