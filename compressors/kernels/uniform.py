"""A few uniform numbers as a function of a key, in plain numpy: loads no numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def uniform(key: int, count: int) -> npt.NDArray[np.float64]:
    """(count,) numbers of [0, 1) with 53 bits each: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
    started from `key` = Key.mix()."""
    state = np.uint64(key) + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
    state = (state ^ (state >> _30)) * _MIX1
    state = (state ^ (state >> _27)) * _MIX2
    return ((state ^ (state >> _31)) >> _11).astype(np.float64) * 2.0**-53
