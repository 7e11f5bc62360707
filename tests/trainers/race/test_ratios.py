"""Ratios of speeds from paired times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from trainers.race.ratios import estimate_rates, estimate_ratios


def draw_times(seed: int, rounds: int = 60, spread: float = 0.1, drift: float = 0.0) -> np.ndarray:
    """Seconds of a step in rounds of three runs, of which the second takes 1.25 and the third as long as the first.

    Args:
        spread: of the noise of each block, as a standard deviation of its logarithm.
        drift: of the machine's speed, which all runs of a round share.
    """
    random = np.random.default_rng(seed)
    shared = np.cumsum(random.normal(0, drift, (rounds, 1)), 0)
    return 0.01 * np.array([1.0, 1.25, 1.0]) * np.exp(shared + random.normal(0, spread, (rounds, 3)))


def test_the_baseline_is_once_as_fast_as_itself() -> None:
    assert estimate_ratios(draw_times(0), 0)[0] == (1, 1, 1)


def test_without_noise_the_ratio_is_exact() -> None:
    ratio = estimate_ratios(draw_times(0, spread=0.0, drift=0.3), 0)[1]
    assert ratio.value == pytest.approx(0.8) and ratio.precision == pytest.approx(0, abs=1e-9) and ratio.differs


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_the_interval_has_the_true_ratio_in_19_of_20_cases(drift: float) -> None:
    """However the speed of the machine changes from round to round."""
    found = [estimate_ratios(draw_times(seed, drift=drift), 0) for seed in range(400)]
    for place, true in ((1, 0.8), (2, 1.0)):
        covered = np.mean([ratios[place].low <= true <= ratios[place].high for ratios in found])
        assert 0.92 <= covered <= 0.99


def test_intervals_are_wider_where_neighbouring_rounds_depend_on_each_other() -> None:
    random = np.random.default_rng(0)
    slow = np.repeat(random.normal(0, 0.2, 20), 10)  # a neighbour that hits one run for ten rounds
    times = 0.01 * np.exp(np.stack([np.zeros(200), slow], 1))
    shuffled = times[random.permutation(200)]
    assert estimate_ratios(times, 0)[1].precision > 1.5 * estimate_ratios(shuffled, 0)[1].precision


def test_few_rounds_tell_little() -> None:
    one, two, many = (estimate_ratios(draw_times(1)[:rounds], 0)[1] for rounds in (1, 2, 60))
    assert one.precision == math.inf and not one.differs
    assert many.precision < two.precision < math.inf


def test_a_ratio_the_other_way_round_is_its_inverse() -> None:
    times = draw_times(2)
    there, back = estimate_ratios(times, 0)[1], estimate_ratios(times, 1)[0]
    assert there.value == pytest.approx(1 / back.value) and there.low == pytest.approx(1 / back.high)


def test_a_rate_is_that_of_the_geometric_mean_time_with_its_own_interval() -> None:
    times = draw_times(3)
    for rate, own in zip(estimate_rates(times), times.T, strict=True):
        assert rate.value == pytest.approx(1 / stats.gmean(own)) and rate.low < rate.value < rate.high
        logs = np.log(own)
        plain = np.exp(logs.std(ddof=1) / len(logs) ** 0.5 * stats.t.ppf(0.975, len(logs) - 1))
        assert rate.high / rate.value >= plain * 0.999, "at least as wide as without dependence"
