"""Round stochastically to evenly spaced levels, and convert levels back to numbers."""

from __future__ import annotations

import numpy as np

from compressors.kernels.cpu.primitives.arrays import Float32s, Uint16s
from compressors.kernels.cpu.primitives.jit import helper

RESOLUTION = np.float32(2.0**31)


@helper
def round_stochastically(exact: np.float32, random: np.uint32) -> np.int32:
    """Round `exact`, from 0 to below 2^31, down, or up if the random number u is below its fraction: floor(exact + u).

    u in [0, 1) is the upper 31 bits of `random`. The sum itself is not computed, since float32 would round it to 24
    bits; the fraction is exact.
    """
    below = np.int32(exact)
    threshold = np.int32((exact - np.float32(below)) * RESOLUTION)
    return np.int32(below + np.int32(np.int32(random >> np.uint32(1)) < threshold))


@helper
def apply_sign(level: np.int32, bits: np.int32) -> np.int32:
    """Return `level` with the sign of the float32 whose bits are `bits`."""
    sign = np.int32(bits >> 31)
    return np.int32(np.int32(level ^ sign) - sign)


@helper
def add_levels(codes: Uint16s, levels: np.float32, factor: np.float32, out: Float32s) -> bool:
    """Compute out[i] += factor * (codes[i] - levels) / levels; return False if a code is larger than 2 * levels."""
    offset = np.int32(levels)
    above = np.int32(0)
    for index in range(out.size):
        code = np.int32(codes[index])
        above = max(above, code)
        out[index] += factor * (np.float32(np.int32(code - offset)) / levels)
    return bool(above <= 2 * offset)
