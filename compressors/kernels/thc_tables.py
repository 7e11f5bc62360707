"""The tables of THC, in plain Python: loads neither torch nor numpy.

Of granularity + 1 evenly spaced levels between -t and t, a table has 2^bits, the outermost among them. A number
between two neighbouring levels a and b of the table is rounded to one of them at random, without bias, which has the
variance (z - a) (b - z). So the mean squared error of a standard normal z within [-t, t] is a sum over the pairs of
neighbours of

    the integral from a to b of (z - a) (b - z) phi(z) dz,

whose value follows from the integrals of phi, z phi and z^2 phi: Phi(z), -phi(z) and Phi(z) - z phi(z). As each term
depends on one pair only, the best table is a shortest path over the levels, with a fixed number of edges: dynamic
programming finds it among all tables. With an even granularity the level in the middle is its own mirror image, so the
best table may not be symmetric. The tables of the authors' code are the best symmetric ones.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from statistics import NormalDist

_NORMAL = NormalDist()
_ALIKE = 1e-12
"""Errors that differ by less are the same: mirror images, whose errors rounding decides, which hosts do differently."""


def find_clip(overflow: float) -> float:
    """Return t, the magnitude that a standard normal number exceeds with the probability `overflow`."""
    return _NORMAL.inv_cdf(1 - overflow / 2)


@functools.cache
def find_table(bits: int, granularity: int, overflow: float) -> tuple[int, ...]:
    """Return the levels of the table with the least error, ascending: numbers from 0 to `granularity`.

    Args:
        bits: of a code; the table has 2^bits levels, at most `granularity` + 1.
        overflow: the probability with which a standard normal number is beyond the outermost levels.
    """
    costs = _compute_costs(granularity, find_clip(overflow))
    least = [0.0] + [math.inf] * granularity  # errors of the best paths to each level, with the edges so far
    before: list[list[int]] = []
    for _ in range(2**bits - 1):
        reached, chosen = [math.inf] * (granularity + 1), [-1] * (granularity + 1)
        for high in range(1, granularity + 1):
            for low in range(high):
                error = least[low] + costs[low][high]
                if error < reached[high] - _ALIKE:
                    reached[high], chosen[high] = error, low
        least = reached
        before.append(chosen)
    path = [granularity]
    for chosen in reversed(before):
        path.append(chosen[path[-1]])
    return tuple(reversed(path))


def compute_error(table: tuple[int, ...], overflow: float) -> float:
    """Return the mean squared error by which rounding to a table adds to standard normal numbers within its ends."""
    costs = _compute_costs(table[-1], find_clip(overflow))
    return sum(costs[low][high] for low, high in zip(table, table[1:], strict=False))


@functools.cache
def _compute_costs(granularity: int, clip: float) -> list[list[float]]:
    """Return the error between each lower and each higher level, if they are neighbours in a table."""
    levels = [clip * (2 * place / granularity - 1) for place in range(granularity + 1)]
    moments = [(_NORMAL.cdf(z), -_NORMAL.pdf(z), _NORMAL.cdf(z) - z * _NORMAL.pdf(z)) for z in levels]

    def integrate(low: int, high: int) -> float:
        zeroth, first, second = (above - below for below, above in zip(moments[low], moments[high], strict=True))
        return -second + (levels[low] + levels[high]) * first - levels[low] * levels[high] * zeroth

    count = range(granularity + 1)
    return [[integrate(low, high) if low < high else math.inf for high in count] for low in count]


@dataclasses.dataclass(frozen=True, eq=False)
class Coding:
    """The numbers with which kernels encode and decode; two codings are equal if they are the same object.

    A rotated element z is placed at z * `scale` + `middle` on the levels, at least at 0 and at most at the last one.
    By the level below it (0 to granularity) is found the level of the table below, `lows`, one over the distance to the
    next level of the table, `slopes`, and the codes of both levels, `lower` and `upper`.

    Attributes:
        width: bits of a code.
        step: distance of neighbouring levels, in units of z.
        values: by code, the level less the one in the middle, of those who send this code.
        head: whether the norms are in front of the codes.
    """

    width: int
    scale: float
    middle: float
    step: float
    lows: tuple[float, ...]
    slopes: tuple[float, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    values: tuple[float, ...]
    head: bool


@functools.cache
def build_coding(bits: int, granularity: int, overflow: float, sums: bool) -> Coding:
    """Return the coding: the places in the table, or with `sums` the levels less the middle one as int8."""
    table, clip, middle = find_table(bits, granularity, overflow), find_clip(overflow), granularity // 2
    places = [max(place for place, level in enumerate(table) if level <= below) for below in range(granularity + 1)]
    nexts = [min(place + 1, len(table) - 1) for place in places]
    codes = [(level - middle) & 255 for level in table] if sums else list(range(len(table)))
    signed = (float(code - 256 if code > 127 else code) for code in range(256))
    return Coding(
        width=8 if sums else bits,
        scale=_round(granularity / (2 * clip)),
        middle=float(middle),
        step=_round(2 * clip / granularity),
        lows=tuple(float(table[place]) for place in places),
        slopes=tuple(
            _round(1 / (table[high] - table[low])) if high > low else 0.0
            for low, high in zip(places, nexts, strict=True)
        ),
        lower=tuple(codes[place] for place in places),
        upper=tuple(codes[place] for place in nexts),
        values=tuple(signed) if sums else tuple(float(level - middle) for level in table),
        head=not sums,
    )


def _round(value: float) -> float:
    """Return the float32 nearest to a number."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
