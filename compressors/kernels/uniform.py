"""Draw a few uniform numbers as a function of a key, in plain numpy, without loading numba."""

from __future__ import annotations

from compressors.lazy import np, npt

_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


def uniform(key: int, count: int) -> npt.NDArray[np.float64]:
    """Return `count` numbers in [0, 1) of 53 bits, drawn by SplitMix64 (Steele, Lea and Flood, 2014) from `key` =
    Key.mix()."""
    state = np.uint64(key) + np.uint64(_GOLDEN) * np.arange(1, count + 1, dtype=np.uint64)
    state = (state ^ (state >> 30)) * _MIX1
    state = (state ^ (state >> 27)) * _MIX2
    return ((state ^ (state >> 31)) >> 11).astype(np.float64) * 2.0**-53
