"""The levels of dynamic tree quantisation, in plain Python: loads neither torch nor numpy."""

from __future__ import annotations

import functools
import struct

DECADES = 7


def _float32(value: float) -> float:
    """Return the float32 nearest to a number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _magnitudes() -> tuple[float, ...]:
    """Return the magnitudes of the levels, ascending: 0, 127 midpoints, and 1.

    Decade e, counted from 1 down, is divided into 2^(6 - e) equal parts, whose midpoints these are.
    """
    found = [0.0]
    for decade in reversed(range(DECADES)):
        parts = 2 ** (DECADES - 1 - decade)
        found += [(0.1 + 0.9 * (part + 0.5) / parts) * 10.0**-decade for part in range(parts)]
    return tuple(_float32(value) for value in [*found, 1.0])


MAGNITUDES = _magnitudes()
"""By rank, 0 to 128; float32."""

PARTS = tuple(float(2**place) for place in range(DECADES))
"""Of the decades, from the smallest numbers up. The ranks in a decade of p parts are p to 2 p - 1."""

STARTS = tuple(_float32((MAGNITUDES[int(parts) - 1] + MAGNITUDES[int(parts)]) / 2) for parts in PARTS)
"""A magnitude y belongs to the last decade with a start below y, which need not be the one that it lies in. Its
rank there is floor(y * slope + p * 8 / 9), or 2 p - 1 where that is less: y = 0.1 * 10^-e gives p exactly."""

SLOPES = tuple(_float32(parts * 10.0 ** (DECADES - 1 - place) / 0.9) for place, parts in enumerate(PARTS))

EIGHT_NINTHS = _float32(8 / 9)

ONE = _float32((MAGNITUDES[127] + MAGNITUDES[128]) / 2)
"""A magnitude above has rank 128."""

VALUES = MAGNITUDES + tuple(-value for value in MAGNITUDES[1:-1])
"""By code, 0 to 255: magnitudes of rank 0 to 128 with plus, of rank 1 to 127 with minus."""


@functools.cache
def worst_error(count: int) -> float:
    """Return the smallest e with ||Q(x) - x||^2 <= e ||x||^2 for all x of `count` elements in one bucket.

    In the worst case the largest magnitude is -1, which is not a level. Each other element adds the square of its error
    d to the error, and y^2 to the norm. The ratio of the sums is largest if all of them maximise d^2 - e y^2, which
    between two levels is halfway.
    """
    own = (MAGNITUDES[128] - MAGNITUDES[127]) ** 2
    others = max(count - 1, 0)
    return max(
        (own + others * ((high - low) / 2) ** 2) / (1.0 + others * ((high + low) / 2) ** 2)
        for low, high in zip(MAGNITUDES[:-1], MAGNITUDES[1:], strict=True)
    )
