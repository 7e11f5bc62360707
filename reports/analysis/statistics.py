"""Compute mean, spread and tests over the seeds of a cell, with scipy and statsmodels.

All functions work on many cells at once: a sweep may have thousands of cells, and each call of scipy takes a
millisecond. Both packages take a second to load, so they are imported where they are used.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 1999
_BATCH = 100  # resamples held at once: memory is this x cells x seeds
_ROUNDING = 1e-9  # a relative spread below this is rounding, not seeds
_NAN = math.nan
_MOST_STRETCHED = 50.0  # logarithm of a factor beyond all axes
_quietly = np.errstate(over="ignore", invalid="ignore")  # losses just before they diverge have infinite squares


@dataclasses.dataclass(frozen=True)
class Summary:
    """The statistics of a cell's values; `n` is the number of finite ones.

    Attributes:
        std: with n - 1 in the denominator; NaN if n < 2, and so are all intervals.
        low, high: 95 % interval of the mean by Student's t.
        boot_low, boot_high: 95 % interval of the mean by the percentiles of a bootstrap (Efron 1979).
        least, most: the smallest and the largest value.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float
    boot_low: float
    boot_high: float
    median: float
    least: float
    most: float


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of a cell from the baseline over `n` pairs: runs with the same seed, or runs close in time.

    Attributes:
        low, high: 95 % interval of the mean difference; NaN if n < 2.
        p: of a paired t test; NaN if no test is possible (n < 2, or all pairs have the same difference).
        p_holm: `p` after the correction of Holm (1979) for all tests of a table; NaN before `correct_differences`.
    """

    n: int
    mean: float
    low: float
    high: float
    p: float
    p_holm: float = _NAN


def summarize(values: Iterable[float]) -> Summary:
    """Return the summary of one cell."""
    return summarize_cells([values])[0]


@_quietly
def summarize_cells(groups: Sequence[Iterable[float]]) -> list[Summary]:
    """Return the summaries of many cells; each is independent of the other cells."""
    cells = [_keep_finite(values) for values in groups]
    found: dict[int, Summary] = {}
    for place, cell in enumerate(cells):
        if len(cell) < 2:
            value = float(cell[0]) if len(cell) else _NAN
            found[place] = Summary(len(cell), value, _NAN, _NAN, _NAN, _NAN, _NAN, value, value, value)
    for places, block in _group_by_length(cells):
        mean, std = block.mean(1), block.std(1, ddof=1)
        low, high = _compute_interval(mean, std, np.full(len(block), block.shape[1]))
        columns = [mean, std, low, high, *_bootstrap(block), np.median(block, 1), block.min(1), block.max(1)]
        for place, *numbers in zip(places, *(column.tolist() for column in columns), strict=True):
            found[place] = Summary(block.shape[1], *numbers)
    return [found[place] for place in range(len(cells))]


def compare_paired(values: Mapping[Any, float], baseline: Mapping[Any, float]) -> Difference | None:
    """Return the difference of a cell from its baseline, given both by seed; None if they share no seed."""
    seeds = [seed for seed in values if seed in baseline]
    return compare_cells([np.array([[values[seed], baseline[seed]] for seed in seeds], float).reshape(-1, 2)])[0]


@_quietly
def compare_cells(pairs: Sequence[np.ndarray]) -> list[Difference | None]:
    """Return the differences of many cells from their baselines.

    Args:
        pairs: for each cell (seeds, 2): its value and that of the baseline; pairs with NaN or infinity do not count.
    """
    cells = [both[np.isfinite(both).all(1)] for both in pairs]
    found: dict[int, Difference | None] = {}
    for place, both in enumerate(cells):
        if len(both) < 2:
            found[place] = Difference(1, float(both[0, 0] - both[0, 1]), _NAN, _NAN, _NAN) if len(both) else None
    for places, block in _group_by_length(cells):
        # If differences vary only by rounding, a t test would find significance in the last bits.
        gaps = block[:, :, 0] - block[:, :, 1]
        is_tested = gaps.std(1, ddof=1) > _ROUNDING * np.abs(block).max((1, 2))
        means, p = gaps.mean(1), np.full(len(block), _NAN)
        low, high = means.copy(), means.copy()
        if is_tested.any():
            low[is_tested], high[is_tested], p[is_tested] = _test_paired(block[is_tested])
        for place, *numbers in zip(places, means.tolist(), low.tolist(), high.tolist(), p.tolist(), strict=True):
            found[place] = Difference(block.shape[1], *numbers)
    return [found[place] for place in range(len(cells))]


@_quietly
def compare_ratios(pairs: Sequence[np.ndarray]) -> list[Difference | None]:
    """Return the differences of many cells from their baselines, tested by the logarithms of the pairs' ratios.

    A busy machine slows both runs of a pair down by a common factor, so their ratio varies less than their difference.
    The difference is (mean ratio - 1) times the geometric mean of the baseline, and so are the ends of its interval.

    Args:
        pairs: as for `compare_cells`; pairs with a value of 0 or below do not count either.
    """
    cells = [both[np.isfinite(both).all(1) & (both > 0).all(1)] for both in pairs]
    logs = [np.log(both) for both in cells]
    # against 1, so that the limit for rounding does not depend on the unit
    gaps = compare_cells([np.column_stack([1 + log[:, 0] - log[:, 1], np.ones(len(log))]) for log in logs])
    found: list[Difference | None] = []
    for log, gap in zip(logs, gaps, strict=True):
        if gap is not None:
            level = math.exp(float(log[:, 1].mean()))
            mean, low, high = (level * math.expm1(value) for value in (gap.mean, gap.low, gap.high))
            gap = dataclasses.replace(gap, mean=mean, low=low, high=high)
        found.append(gap)
    return found


def compare_unpaired(values: Iterable[float], baseline: Iterable[float]) -> Difference | None:
    """Return the difference of the means of two cells that share no seeds, by Welch's t test.

    It is None if a cell has no value. It has no interval and no p value if a cell has a single value, or if neither
    cell has any spread.
    """
    first, second = _keep_finite(values), _keep_finite(baseline)
    if not len(first) or not len(second):
        return None
    n, mean = min(len(first), len(second)), float(first.mean() - second.mean())
    if n < 2:
        return Difference(n, mean, _NAN, _NAN, _NAN)
    largest = max(np.abs(first).max(), np.abs(second).max())
    if max(first.std(ddof=1), second.std(ddof=1)) <= _ROUNDING * largest:
        return Difference(n, mean, mean, mean, _NAN)
    from scipy import stats

    tested = stats.ttest_ind(first, second, equal_var=False)
    interval = tested.confidence_interval(CONFIDENCE)
    return Difference(n, mean, float(interval.low), float(interval.high), float(tested.pvalue))


def correct_holm(ps: Sequence[float]) -> list[float]:
    """Return the p values after Holm's correction for the number of p values that are not NaN; NaN stays NaN."""
    tested = [place for place, p in enumerate(ps) if not math.isnan(p)]
    corrected = [_NAN] * len(ps)
    if tested:
        from statsmodels.stats.multitest import multipletests

        gc.freeze()  # multipletests collects garbage at every call, also among the objects that exist already
        try:
            adjusted = multipletests([ps[place] for place in tested], method="holm")[1]
        finally:
            gc.unfreeze()
        for place, p in zip(tested, adjusted, strict=True):
            corrected[place] = float(p)
    return corrected


def correct_differences(found: Sequence[Difference | None]) -> list[Difference | None]:
    """Return the differences of a table with their `p_holm` set."""
    adjusted = correct_holm([difference.p if difference else _NAN for difference in found])
    return [
        dataclasses.replace(difference, p_holm=p) if difference else None
        for difference, p in zip(found, adjusted, strict=True)
    ]


@_quietly
def compute_band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of some curves at each point, and its 95 % interval by Student's t.

    Args:
        curves: (runs, points); NaN if a run has no value at a point, where it then does not count.

    Returns:
        mean, low and high, (points,) each; NaN if no run has a value; low and high also NaN if only one run has.
    """
    values = np.where(np.isfinite(curves), curves, _NAN).astype("float64")
    counts = np.isfinite(values).sum(0)
    mean, low, high = (np.full(values.shape[1], _NAN) for _ in range(3))
    if (some := counts > 0).any():
        mean[some] = np.nanmean(values[:, some], 0)
    if (many := counts > 1).any():
        spread = np.nanstd(values[:, many], 0, ddof=1)
        low[many], high[many] = _compute_interval(mean[many], spread, counts[many])
    return mean, low, high


def stretch_band(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the 95 % intervals of positive means, computed on the log scale by the delta method.

    There the interval of Student's t is mean / f to mean x f with f = exp(its half / mean): it never reaches 0. A mean
    of 0 keeps its interval.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.exp(np.minimum((high - low) / 2 / mean, _MOST_STRETCHED))
    is_known = (mean > 0) & np.isfinite(factor)
    return np.where(is_known, mean / factor, low), np.where(is_known, mean * factor, high)


def _keep_finite(values: Iterable[float]) -> np.ndarray:
    array = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, "float64")
    return array[np.isfinite(array)]


def _group_by_length(cells: Sequence[np.ndarray]) -> Iterable[tuple[list[int], np.ndarray]]:
    """Yield groups of cells with the same number of values, at least two: their positions, and their values stacked."""
    places: dict[int, list[int]] = {}
    for place, cell in enumerate(cells):
        if len(cell) > 1:
            places.setdefault(len(cell), []).append(place)
    for members in places.values():
        yield members, np.stack([cells[place] for place in members])


def _compute_interval(mean: np.ndarray, std: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of the 95 % intervals of means by Student's t."""
    half = compute_quantiles(counts) * std / np.sqrt(counts)
    return mean - half, mean + half


def compute_quantiles(counts: np.ndarray) -> np.ndarray:
    """Return the factor of the standard error in the 95 % interval of a mean of so many values, at least 2."""
    from scipy.special import stdtrit  # the quantiles that scipy.stats.t has, in a quarter of the time to load

    return np.asarray(stdtrit(counts - 1, (1 + CONFIDENCE) / 2))


def _bootstrap(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the bootstrap intervals of the mean of each row of `block`, (cells, values).

    The intervals are percentiles, since corrected bootstraps need more values than a cell has seeds. All cells with the
    same number of values are resampled with the same random numbers. So a report that is written again has the same
    intervals, and a cell has the same interval in every table.
    """
    from scipy import stats

    low, high = block[:, 0].copy(), block[:, 0].copy()
    varies = block.min(1) < block.max(1)  # resampling constant values, such as sizes of messages, changes nothing
    if not varies.any():
        return low, high
    found = stats.bootstrap(
        (block[varies],),
        np.mean,
        axis=1,
        vectorized=True,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    low[varies], high[varies] = found.low, found.high
    return low, high


def _test_paired(block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return low, high and p value of each cell's mean difference; `block` is (cells, pairs, 2)."""
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for differences that hardly vary
        tested = stats.ttest_rel(block[:, :, 0], block[:, :, 1], axis=1)
        interval = tested.confidence_interval(CONFIDENCE)
    return interval.low, interval.high, tested.pvalue
