"""Intervals of means from batches of consecutive values."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.special import stdtrit

from trainers.recording import batch_means
from trainers.recording.batch_means import LEAST_BATCHES, LEAST_VALUES, MOST_BATCHES, MOST_SUMS, BatchMeans


def collect(values: np.ndarray) -> BatchMeans:
    batches = BatchMeans()
    for value in values.tolist():
        batches.add(value)
    return batches


def compute_margin(means: np.ndarray) -> float:
    """By Student's t, widened by the correlation of neighbours, whose estimate is corrected for its bias."""
    gaps = means - means.mean()
    found = (gaps[1:] * gaps[:-1]).sum() / (gaps**2).sum()
    correlation = min(max(found + (1 + 3 * found) / len(means), 0), 0.9)
    widened = math.sqrt((1 + correlation) / (1 - correlation))
    return float(stdtrit(len(means) - 1, 0.975) * widened * means.std(ddof=1) / math.sqrt(len(means)))


@pytest.mark.parametrize(("count", "size"), [(30, 3), (39, 3), (40, 4), (79, 6), (80, 8), (159, 12)])
def test_there_are_ten_batches_or_some_more_as_long_as_possible(count: int, size: int) -> None:
    """Thirty values are ten batches of 3, not fifteen of 2, which would hardly be independent."""
    values = np.random.default_rng(5).exponential(size=count)
    means = values[: count // size * size].reshape(-1, size).mean(1)
    assert LEAST_BATCHES <= len(means) <= MOST_BATCHES
    assert collect(values).compute_margin() == pytest.approx(compute_margin(means), rel=1e-4)


def test_the_quantiles_are_those_of_student() -> None:
    freedom = np.arange(LEAST_BATCHES - 1, MOST_BATCHES)
    assert pytest.approx(stdtrit(freedom, 0.975), abs=5e-5) == batch_means._T


def test_the_margin_is_that_of_batches_by_hand() -> None:
    values = np.random.default_rng(1).exponential(size=3000)
    size = 128  # doubled from 1 until fewer than 40 are full
    means = values[: 3000 // size * size].reshape(-1, size).mean(1)
    means = means[: len(means) // 2 * 2].reshape(-1, 2).mean(1)
    expected = compute_margin(means)
    assert collect(values).compute_margin() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("count", [0, 1, LEAST_VALUES - 1])
def test_few_values_have_no_margin(count: int) -> None:
    assert collect(np.arange(count)).compute_margin() is None


@pytest.mark.parametrize("count", [LEAST_VALUES, 39, 40, 41, 79, 80, 81, 1000, 9999])
def test_every_longer_series_has_one(count: int) -> None:
    batches = collect(np.random.default_rng(2).normal(size=count))
    margin = batches.compute_margin()
    assert margin is not None and margin > 0
    assert len(batches.state_dict()["sums"]) < MOST_SUMS


@pytest.mark.parametrize(
    ("count", "correlation", "least"), [(2000, 0.0, 180), (2000, 0.8, 180), (30, 0.0, 180), (30, 0.6, 172)]
)
def test_the_interval_has_the_mean_in_most_cases(count: int, correlation: float, least: int) -> None:
    """Nineteen of twenty intervals have it, and nine of ten if the neighbours of few values are alike.

    Of thirty values with a correlation of 0.6, fifteen batches of two gave 15 of 20.
    """
    random = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        noise = random.normal(size=count)
        values = np.empty_like(noise)
        values[0] = noise[0] / math.sqrt(1 - correlation**2)
        for place in range(1, len(noise)):
            values[place] = correlation * values[place - 1] + noise[place]
        margin = collect(values).compute_margin()
        assert margin is not None
        found += abs(values.mean()) <= margin
    assert least <= found <= 199


def test_a_restored_series_goes_on() -> None:
    values = np.random.default_rng(4).normal(size=777)
    first = collect(values[:333])
    second = BatchMeans()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for value in values[333:].tolist():
        second.add(value)
    assert second.compute_margin() == collect(values).compute_margin()


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="the state of batch means has the keys"):
        BatchMeans().load_state_dict({"size": 1})
