"""The levels with the least squared error for standard normal numbers, in plain Python: loads neither torch nor numpy.

S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28(2), 1982; J. Max,
"Quantizing for minimum distortion", IRE Transactions on Information Theory 6(1), 1960. Each level is the mean of the
numbers that are nearer to it than to the others; a test holds the numbers below to that.
"""

from __future__ import annotations

import struct

_MAGNITUDES: dict[int, tuple[float, ...]] = {
    1: (0.797884561,),
    2: (0.452780035, 1.510417608),
    3: (0.245094179, 0.756005281, 1.343909279, 2.151945705),
    4: (0.12839503, 0.388048299, 0.656759119, 0.942340456, 1.256231197, 1.618046386, 2.069017227, 2.732589571),
}


def _round(value: float) -> float:
    """Return the float32 nearest to a number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


MAGNITUDES = {bits: tuple(map(_round, levels)) for bits, levels in _MAGNITUDES.items()}
"""By the number of bits of a code, the positive levels, ascending; float32. The others are the same with minus."""

BORDERS = {
    bits: tuple(_round((low + high) / 2) for low, high in zip(levels, levels[1:], strict=False))
    for bits, levels in MAGNITUDES.items()
}
"""The magnitudes halfway between two levels, ascending; float32. A border belongs to the lower level."""

VALUES = {bits: (*(-level for level in reversed(levels)), *levels) for bits, levels in MAGNITUDES.items()}
"""By code, all levels, ascending."""
