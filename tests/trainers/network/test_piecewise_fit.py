"""Lines through times that are known to lie on lines: how many, from where to where, and what bends none."""

from __future__ import annotations

import numpy as np
import pytest

from trainers.network import piecewise_fit
from trainers.network.piecewise_fit import FEWEST, fit

SIZES = 4.0 * 2.0 ** np.arange(25)
ALPHA, BETA = 1e-3, 1e-8


def truth(*lines: tuple[float, float, float]) -> np.ndarray:
    """Times at SIZES on lines, each given by the first size that it is for, alpha and beta."""
    times = np.zeros_like(SIZES)
    for start, alpha, beta in lines:
        times = np.where(start <= SIZES, alpha + beta * SIZES, times)
    return times


def noisy(times: np.ndarray, noise: float, seed: int) -> np.ndarray:
    return times * (1 + noise * np.random.default_rng(seed).standard_normal(len(times)))


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_one_line_is_found_as_one(noise: float, seed: int) -> None:
    (line,) = fit(SIZES, noisy(truth((0, ALPHA, BETA)), noise, seed), np.full(25, noise))
    assert (line.first, line.last) == (0, 24)
    assert line.alpha == pytest.approx(ALPHA, rel=noise + 1e-9) and line.beta == pytest.approx(BETA, rel=noise + 1e-9)
    assert line.residual == pytest.approx(noise, rel=0.6, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_where_one_line_gives_way_to_the_next(noise: float, seed: int) -> None:
    times = truth((0, 1e-4, 2e-8), (2**12, 3e-4, 5e-8), (2**19, 1e-3, 1e-8))
    lines = fit(SIZES, noisy(times, noise, seed), np.full(25, noise))
    assert [(SIZES[line.first], SIZES[line.last]) for line in lines] == [(4, 2**11), (2**12, 2**18), (2**19, 2**26)]
    assert [line.alpha for line in lines[:2]] == pytest.approx([1e-4, 3e-4], rel=0.05)
    assert [line.beta for line in lines[1:]] == pytest.approx([5e-8, 1e-8], rel=0.05)


def test_a_slope_that_changes_without_a_jump_is_found() -> None:
    knee = 2.0**16
    times = np.where(knee > SIZES, 1e-4 + 1e-8 * SIZES, 1e-4 + 1e-8 * knee + 1e-7 * (SIZES - knee))
    lines = fit(SIZES, noisy(times, 0.01, 1), np.full(25, 0.01))
    assert len(lines) == 2 and lines[1].beta == pytest.approx(1e-7, rel=0.03)


def test_outliers_are_named_and_bend_nothing() -> None:
    times = truth((0, ALPHA, BETA))
    times[[5, 12, 20]] *= [10, 3, 0.3]
    (line,) = fit(SIZES, noisy(times, 0.01, 2), np.full(25, 0.01))
    assert line.outliers == (5, 12, 20)
    assert line.alpha == pytest.approx(ALPHA, rel=0.02) and line.beta == pytest.approx(BETA, rel=0.02)
    assert line.residual < 0.03


def test_the_largest_size_is_no_outlier() -> None:
    """Where a protocol changes at the last point but one, larger sizes are predicted from what is there."""
    times = truth((0, ALPHA, 0.0))
    times[-2:] *= [4, 8]
    (*_, last) = fit(SIZES, noisy(times, 0.01, 3), np.full(25, 0.01))
    assert last.last == 24 and 24 not in last.outliers
    assert last.alpha + last.beta * SIZES[-1] == pytest.approx(times[-1], rel=0.25)


def test_a_scatter_that_the_errors_do_not_tell_of_makes_few_lines() -> None:
    """By the errors alone it would be 20 lines."""
    found = [len(fit(SIZES, noisy(truth((0, ALPHA, BETA)), 0.05, seed), np.zeros(25))) for seed in range(10)]
    assert sum(found) <= 16


def test_a_point_counts_by_its_error() -> None:
    times = truth((0, ALPHA, 0.0))
    times[::2] *= 1.2
    errors = np.where(np.arange(25) % 2, 0.02, 0.4)
    (line,) = fit(SIZES, times, errors)
    assert line.alpha == pytest.approx(ALPHA, rel=0.02)


def test_neither_alpha_nor_beta_is_negative() -> None:
    falling = fit(SIZES[:6], [6, 5, 4, 3, 2, 1], np.full(6, 0.5))
    steep = fit(SIZES[-6:], SIZES[-6:] * 1e-8 - 0.9e-8 * SIZES[-6], np.full(6, 0.5))
    assert all(line.alpha >= 0 and line.beta >= 0 for line in (*falling, *steep))


@pytest.mark.parametrize("count", range(2, 2 * FEWEST))
def test_few_points_are_on_one_line(count: int) -> None:
    times = truth((0, 1e-4, 0.0), (16, 1.0, 0.0))[:count]
    (line,) = fit(SIZES[:count], times, np.full(count, 0.01))
    assert (line.first, line.last) == (0, count - 1)


def test_no_line_without_two_points() -> None:
    assert fit([], [], []) == fit([4], [1e-3], [0.1]) == []


def test_every_point_belongs_to_one_line() -> None:
    times = np.random.default_rng(5).uniform(1, 100, 25)
    lines = fit(SIZES, times, np.full(25, 0.01))
    assert [place for line in lines for place in range(line.first, line.last + 1)] == list(range(25))
    assert len(lines) <= piecewise_fit.MOST
