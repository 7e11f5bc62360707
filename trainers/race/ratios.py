"""Ratios between the speeds of runs that took turns, with their intervals.

The times of one round are paired: all runs took a block of steps in it, within a second or so. Per round, the logarithm
of the ratio of two times is taken; the estimate is the mean over the rounds. Its standard error is that of a moving
block bootstrap, which keeps neighbouring rounds together (Künsch, "The jackknife and the bootstrap for general
stationary observations", Annals of Statistics 17, 1989), and the interval is Student's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 400


class Ratio(NamedTuple):
    """The speed of one run relative to another, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def precision(self) -> float:
        """Half the width of the interval relative to the value; infinite without an interval."""
        width = (self.high - self.low) / 2 / self.value
        return width if math.isfinite(width) else math.inf

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1, so that the two speeds differ significantly."""
        return not self.low <= 1 <= self.high


def estimate_ratios(times: np.ndarray, baseline: int, seed: int = 0) -> list[Ratio]:
    """Return the ratio of each run's speed to the baseline's.

    Args:
        times: seconds a step, (rounds, runs), all above 0.
        baseline: the baseline's column.
        seed: of the bootstrap.
    """
    logs = np.log(times)
    return _summarise(logs[:, [baseline]] - logs, seed)


def estimate_rates(times: np.ndarray, seed: int = 0) -> list[Ratio]:
    """Return the steps a second of each run, with the interval over the rounds.

    Args:
        times: seconds a step, (rounds, runs), all above 0.
        seed: of the bootstrap.
    """
    return _summarise(-np.log(times), seed)


def _summarise(differences: np.ndarray, seed: int) -> list[Ratio]:
    """Return the estimate and interval of each run by its log ratios, or log rates, over the rounds: (rounds, runs)."""
    means = differences.mean(0)
    margins = _compute_standard_errors(differences, seed) * _compute_quantile(len(differences) - 1)
    return [
        Ratio(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin) if margin < math.inf else math.inf)
        for mean, margin in zip(means.tolist(), margins.tolist(), strict=True)
    ]


def _compute_quantile(freedom: int) -> float:
    """Return the quantile of Student's t for a two-sided interval; infinity without degrees of freedom."""
    from scipy.special import stdtrit  # half a second to load, and only rank 0 needs it

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) if freedom else math.inf


def _compute_standard_errors(values: np.ndarray, seed: int) -> np.ndarray:
    """Return the standard error of the mean of each column of `values`, (rounds, runs)."""
    rounds = len(values)
    if rounds < 2:
        return np.full(values.shape[1], np.inf)
    plain = values.std(0, ddof=1) / math.sqrt(rounds)
    length = round(rounds ** (1 / 3))
    if length < 2:
        return np.asarray(plain)
    sums = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(0)])
    blocks = (sums[length:] - sums[:-length]) / length
    count = max(rounds // length, 1)
    starts = np.random.default_rng(seed).integers(0, len(blocks), (RESAMPLES, count))
    errors = blocks[starts].mean(1).std(0, ddof=1)
    # rounds that depend on each other make it larger; that a bootstrap of few blocks is smaller is its own error
    return np.asarray(np.maximum(errors, plain))
