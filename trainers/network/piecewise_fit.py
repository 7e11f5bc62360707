"""Fit lines alpha + beta n to the measured times of a collective, one for each range of message sizes n.

An MPI library changes its algorithm or protocol with the size of a message, and with it alpha and beta. The number of
lines and their ranges are chosen by dynamic programming over all segmentations of the points (Bellman and Roth, 1969),
with a penalty for each line as in the Bayesian information criterion (Schwarz, 1978). An outlier costs a fixed amount
and does not influence the line. The point of the largest size costs more as an outlier, because extrapolation to larger
sizes depends on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FLOOR = 0.02
"""Relative error of a time at least: machines are not the same from one second to the next."""
OUTLIER = 3.0
"""Standard errors from which on a point counts as an outlier."""
LAST = 9.0
"""Likewise of the point of the largest size."""
NORMAL_MEDIAN = 0.6745  # of the magnitudes of what is normal, in standard deviations
FEWEST = 3
"""Points of a line at least: two are on one whatever they are."""
MOST = 4
"""Lines at most."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A line for the measurements `first` to `last`: a time of `alpha + beta n` seconds for n bytes.

    Attributes:
        residual: root mean square of the relative errors of the points without outliers.
        outliers: the indices of outliers.
    """

    first: int
    last: int
    alpha: float
    beta: float
    residual: float
    outliers: tuple[int, ...] = ()


def fit(sizes: Sequence[float], times: Sequence[float], errors: Sequence[float]) -> list[Line]:
    """Return the lines that fit the times best, by least squares of relative errors and with as few lines as possible.

    Args:
        sizes: in bytes, (points,), ascending.
        times: in seconds, (points,), above 0.
        errors: relative standard errors of the times, (points,); they are raised to at least FLOOR.

    Returns:
        Lines with non-negative alpha and beta in ascending order; each point belongs to one line. None for fewer than
        two points.
    """
    n, t = np.asarray(sizes, float), np.asarray(times, float)
    if len(n) < 2:
        return []
    sigma = np.maximum(np.asarray(errors, float), FLOOR)
    most = max(1, min(MOST, len(n) // FEWEST))
    lines, _ = _cut(n, t, sigma, most)[most]
    scatter = _measure_scatter(n, t, sigma, lines)  # more than the errors say, where the machine had other work
    cuts = _cut(n, t, sigma * max(1.0, scatter), most)
    penalty = 4 * np.log(len(n))  # a line is two numbers and the place where it begins; one more, as errors go together
    best = min(cuts, key=lambda count: cuts[count][1] + penalty * count)
    return cuts[best][0]


def _cut(n: Array, t: Array, sigma: Array, most: int) -> dict[int, tuple[list[Line], float]]:
    """Return the best segmentation into 1, 2, ... `most` lines, with its cost, by number of lines."""
    count, fewest = len(n), min(FEWEST, len(n))
    single = {
        (first, last): _line(n, t, sigma, first, last)
        for first in range(count)
        for last in range(first + fewest - 1, count)
    }
    found: dict[int, dict[int, tuple[list[Line], float]]] = {0: {0: ([], 0.0)}}
    for lines in range(1, most + 1):
        found[lines] = {}
        for (first, last), (line, cost) in single.items():
            if first in found[lines - 1]:
                before, so_far = found[lines - 1][first]
                if so_far + cost < found[lines].get(last + 1, ([], np.inf))[1]:
                    found[lines][last + 1] = ([*before, line], so_far + cost)
    return {lines: ends[count] for lines, ends in found.items() if count in ends}


def _line(n: Array, t: Array, sigma: Array, first: int, last: int) -> tuple[Line, float]:
    """Return the line that fits the measurements `first` to `last` best, and its cost: the sum of squared standardised
    errors, of which each is limited.

    It tries all lines through two points (as in least trimmed squares; Rousseeuw, 1984), and then least squares over
    the points near the best of them.
    """
    of = slice(first, last + 1)
    most = np.where(np.arange(first, last + 1) < len(n) - 1, OUTLIER, LAST)
    x, y, weight = n[of], t[of], 1 / (sigma[of] * t[of])
    left, right = np.triu_indices(len(x), 1)
    beta = np.concatenate([(y[right] - y[left]) / (x[right] - x[left]), np.zeros(len(x)), y / x])
    alpha = np.concatenate([y[left] - beta[: len(left)] * x[left], y, np.zeros(len(x))])
    allowed = (alpha >= 0) & (beta >= 0)
    tried = [*zip(alpha[allowed], beta[allowed], strict=True)]
    costs = _cost((np.array(tried) @ np.stack([np.ones_like(x), x]) - y) * weight, most)
    best, cost = tried[int(np.argmin(costs))], float(costs.min())
    for _ in range(3):
        near = np.abs((best[0] + best[1] * x - y) * weight) < most
        if near.sum() < 2:
            break
        better = _least_squares(x[near], y[near], weight[near])
        better_cost = float(_cost((better[0] + better[1] * x - y) * weight, most))
        if better_cost >= cost:
            break
        best, cost = better, better_cost
    relative = (best[0] + best[1] * x) / y - 1
    near = np.abs(relative / sigma[of]) < most
    residual = float(np.sqrt(np.mean(relative[near] ** 2))) if near.any() else float(np.sqrt(np.mean(relative**2)))
    outliers = tuple(int(place) + first for place in np.flatnonzero(~near))
    return Line(first, last, float(best[0]), float(best[1]), residual, outliers), cost


def _cost(standardised: Array, most: Array | float = OUTLIER) -> Array:
    squares: Array = np.minimum(standardised**2, np.square(most)).sum(axis=-1)
    return squares


def _least_squares(x: Array, y: Array, weight: Array) -> tuple[float, float]:
    """Return non-negative alpha and beta with the least sum of squares of weighted errors."""
    # bytes and seconds differ by many powers of ten: a scale keeps the equations well conditioned
    scale = float(x.max())
    columns = np.stack([weight, weight * x / scale], axis=1)
    alpha, beta = np.linalg.lstsq(columns, weight * y, rcond=None)[0]
    if alpha < 0:
        alpha, beta = 0.0, (columns[:, 1] @ (weight * y)) / (columns[:, 1] @ columns[:, 1])
    elif beta < 0:
        alpha, beta = (columns[:, 0] @ (weight * y)) / (columns[:, 0] @ columns[:, 0]), 0.0
    return float(alpha), float(beta) / scale


def _measure_scatter(n: Array, t: Array, sigma: Array, lines: Sequence[Line]) -> float:
    """Return the median distance of measurements from these lines in standard errors; 1 for too few measurements."""
    parts = [(line, slice(line.first, line.last + 1)) for line in lines]
    off = np.concatenate([(line.alpha + line.beta * n[of] - t[of]) / (sigma[of] * t[of]) for line, of in parts])
    free = len(off) - 3 * len(lines)  # three numbers of a line were chosen to fit
    return float(np.median(np.abs(off)) / NORMAL_MEDIAN * np.sqrt(len(off) / free)) if free > 0 else 1.0
