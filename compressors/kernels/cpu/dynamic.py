"""Dynamic tree quantisation in one pass; `reference.dynamic` is the same in plain torch.

The nearest level is computed and not searched for: seven comparisons find the decade, in which levels are
evenly spaced. All of it can be done eight elements at a time.
"""

from __future__ import annotations

import numpy as np
import torch

from compressors.kernels.cpu import byte_levels
from compressors.kernels.cpu.primitives.arrays import Float32s, Int32s, Uint8s
from compressors.kernels.cpu.primitives.jit import helper, kernel
from compressors.kernels.cpu.scales import NAN, canonical, divisor_of, largest, store
from compressors.kernels.dynamic_map import EIGHT_NINTHS, ONE, PARTS, SLOPES, STARTS, VALUES

_LEVELS = np.array(VALUES, np.float32)
_0, _1, _2, _3, _4, _5, _6 = (np.float32(start) for start in STARTS)
_S0, _S1, _S2, _S3, _S4, _S5, _S6 = (np.float32(slope) for slope in SLOPES)
_P0, _P1, _P2, _P3, _P4, _P5, _P6 = (np.float32(parts) for parts in PARTS)
_EIGHT_NINTHS = np.float32(EIGHT_NINTHS)
_ONE = np.float32(ONE)


@helper
def _find_codes(x: Float32s, bits: Int32s, scale: np.float32, codes: Uint8s) -> None:
    """Find the codes of x, from the signs in `bits` and the magnitudes |x| / scale, which are in [0, 1]."""
    for index in range(x.size):
        y = abs(x[index]) / scale
        slope = _S0 if y > _0 else np.float32(0.0)
        parts = _P0 if y > _0 else np.float32(0.5)
        slope = _S1 if y > _1 else slope
        parts = _P1 if y > _1 else parts
        slope = _S2 if y > _2 else slope
        parts = _P2 if y > _2 else parts
        slope = _S3 if y > _3 else slope
        parts = _P3 if y > _3 else parts
        slope = _S4 if y > _4 else slope
        parts = _P4 if y > _4 else parts
        slope = _S5 if y > _5 else slope
        parts = _P5 if y > _5 else parts
        slope = _S6 if y > _6 else slope
        parts = _P6 if y > _6 else parts
        rank = np.int32(min(y * slope + parts * _EIGHT_NINTHS, parts + parts - np.float32(1.0)))
        rank = np.int32(rank + np.int32(y > _ONE))
        # behind the 129 magnitudes with plus those with minus, without 0 and 1
        minus = np.int32(np.int32(np.int32(rank > 0) << np.int32(7)) - (rank >> np.int32(7)))
        codes[index] = np.uint8(np.int32(rank + np.int32(minus & (bits[index] >> np.int32(31)))))


@kernel("void(float32[::1], int32[::1], int64, uint8[::1])")
def _encode(x: Float32s, bits: Int32s, bucket: int, payload: Uint8s) -> None:
    """Write the payload of `x` into `payload`, which has exactly the right length; `bits` is a view of `x`."""
    buckets = (x.size + bucket - 1) // bucket
    codes = payload[4 * buckets :]
    for number in range(buckets):
        start = number * bucket
        stop = min(start + bucket, x.size)
        scale = canonical(largest(bits[start:stop]))
        store(payload, number, scale)
        if scale == NAN:
            codes[start:stop] = 0
        else:
            _find_codes(x[start:stop], bits[start:stop], divisor_of(scale), codes[start:stop])


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    values = x.numpy()
    _encode(values, values.view(np.int32), bucket, payload.numpy())


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    return byte_levels.decode_add(payload, _LEVELS, 127, bucket, weight, out)
