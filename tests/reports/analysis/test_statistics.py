"""Mean, interval and test are those of the textbooks, and of scipy asked for one cell at a time."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from scipy import stats

from reports.analysis import statistics
from reports.analysis.statistics import (
    Difference,
    Summary,
    compare_cells,
    compare_paired,
    compute_band,
    correct_holm,
    summarize,
    summarize_cells,
)

SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
"""Additional hours of sleep of ten patients with two drugs: Student, The Probable Error of a Mean, 1908."""


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def test_a_cell_is_what_the_textbook_says() -> None:
    found = summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert (found.n, found.mean, found.median, found.least, found.most) == (8, 5.0, 4.5, 2.0, 9.0)
    assert found.std == pytest.approx(math.sqrt(32 / 7))
    half = 2.3646 * math.sqrt(32 / 7 / 8)  # Student's t, 7 degrees of freedom, 97.5 %
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half), abs=1e-4)
    assert 2 < found.boot_low < 5 < found.boot_high < 9


def test_the_bootstrap_is_that_of_scipy() -> None:
    draw = np.random.default_rng(5)
    cells = draw.normal(3, 2, (7, 40))
    for found, cell in zip(summarize_cells(list(cells)), cells, strict=True):
        alone = stats.bootstrap((cell,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
        spread = cell.std(ddof=1) / math.sqrt(40)
        assert (found.boot_low, found.boot_high) == pytest.approx(tuple(alone), abs=0.15 * spread)


def test_a_cell_has_the_same_numbers_alone_and_among_others() -> None:
    draw = np.random.default_rng(3)
    groups = [draw.normal(size=n) for n in (5, 1, 3, 5, 0, 2, 3, 5)]
    together = summarize_cells(groups)
    for alone, found in zip(map(summarize, groups), together, strict=True):
        assert [*vars(alone).values()] == pytest.approx([*vars(found).values()], nan_ok=True, rel=1e-14)
    assert [found.n for found in together] == [5, 1, 3, 5, 0, 2, 3, 5]


def test_what_is_no_number_does_not_count() -> None:
    assert summarize([1.0, math.nan, 3.0, math.inf]) == summarize([1.0, 3.0])
    one = summarize([4.0, math.nan])
    assert (one.n, one.mean, one.median, one.least, one.most) == (1, 4.0, 4.0, 4.0, 4.0)
    assert all(map(math.isnan, (one.std, one.low, one.high, one.boot_low, one.boot_high)))
    nothing = summarize([])
    assert nothing.n == 0 and all(math.isnan(value) for value in [*vars(nothing).values()][1:])


def test_equal_values_have_no_spread() -> None:
    assert summarize([0.5, 0.5, 0.5]) == Summary(3, 0.5, 0.0, *[0.5] * 7)


def test_the_paired_test_is_students() -> None:
    found = compare_paired(by_seed(SLEEP_2), by_seed(SLEEP_1))
    assert found and found.n == 10 and found.mean == pytest.approx(1.58)
    assert found.p == pytest.approx(0.002833, abs=1e-6)  # R: t.test(extra ~ group, sleep, paired = TRUE)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert math.isnan(found.p_holm)


def test_pairs_are_of_the_same_seed() -> None:
    found = compare_paired({3: 5.0, 1: 2.0, 2: 4.0, 9: 100.0, 4: math.nan}, {1: 1.0, 2: 2.5, 3: 3.0, 4: 1.0, 7: -100.0})
    assert found == compare_paired({1: 2.0, 2: 4.0, 3: 5.0}, {1: 1.0, 2: 2.5, 3: 3.0})
    assert found and found.n == 3 and found.mean == pytest.approx(1.5)
    assert found.p == pytest.approx(stats.ttest_1samp([1.0, 1.5, 2.0], 0).pvalue)
    assert compare_paired({1: 2.0}, {2: 2.0}) is None
    single = compare_paired({1: 2.0, 2: 3.0}, {2: 1.0})
    assert single and (single.n, single.mean) == (1, 2.0) and math.isnan(single.p) and math.isnan(single.low)


def test_the_same_difference_for_all_seeds_is_no_evidence_of_chance() -> None:
    """Message sizes do not vary; and rounding of three equal accuracies must not pass for certainty."""
    for gap in (0.0, 1e6, 0.1):
        found = compare_paired({seed: 0.3 * seed + gap for seed in (1, 2, 3)}, {seed: 0.3 * seed for seed in (1, 2, 3)})
        assert found and found.mean == pytest.approx(gap) and math.isnan(found.p)
        assert found.low == found.high == found.mean


def test_many_differences_are_each_its_own() -> None:
    draw = np.random.default_rng(8)
    pairs = [draw.normal(size=(n, 2)) for n in (4, 0, 2, 4, 1, 3)]
    pairs[3][1, 0] = math.nan
    together = compare_cells(pairs)
    assert [found and found.n for found in together] == [4, None, 2, 3, 1, 3]
    for found, both in zip(together, pairs, strict=True):
        alone = compare_paired(by_seed(list(both[:, 0])), by_seed(list(both[:, 1])))
        if alone and found:
            assert [*vars(alone).values()] == pytest.approx([*vars(found).values()], nan_ok=True)
    assert together[0] and together[0].p == pytest.approx(stats.ttest_rel(*pairs[0].T).pvalue)


def test_holm_is_the_textbooks() -> None:
    """Step-down: 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04, which may not be below the one before."""
    assert correct_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    found = correct_holm([0.01, math.nan, 0.9])
    assert found[::2] == pytest.approx([0.02, 0.9]) and math.isnan(found[1])
    assert correct_holm([]) == [] and math.isnan(correct_holm([math.nan])[0])


def test_differences_are_corrected_together() -> None:
    found = statistics.correct_differences([Difference(3, 1.0, 0.5, 1.5, p) for p in (0.01, 0.04)] + [None])
    assert [difference and difference.p_holm for difference in found] == pytest.approx([0.02, 0.04, None])


def test_a_band_counts_at_each_point_the_runs_that_have_it() -> None:
    curves = np.array([[1.0, 2.0, 3.0, math.nan], [3.0, 2.0, math.inf, math.nan], [5.0, math.nan, math.nan, math.nan]])
    mean, low, high = compute_band(curves)
    assert list(mean[:3]) == [3.0, 2.0, 3.0] and np.isnan([mean[3], low[2], high[2], low[3]]).all()
    first = summarize([1.0, 3.0, 5.0])
    assert (low[0], high[0]) == pytest.approx((first.low, first.high))
    assert low[1] == high[1] == 2.0


@pytest.mark.filterwarnings("error")
def test_nothing_warns() -> None:
    summarize_cells([[1.0, 1.0], [], [2.0], [1e300, 2.0]])
    compare_cells([np.ones((2, 2)), np.array([[1.0, 0.0], [1.0 + 1e-12, 0.0]]), np.full((3, 2), 1e300)])
    compute_band(np.full((2, 3), math.nan))
    compute_band(np.empty((0, 3)))


def test_correction_does_not_search_all_objects_for_garbage() -> None:
    """statsmodels asks for it at each call, which takes longer than all the rest of a table where there are many."""
    searched = []

    def note(phase: str, about: dict[str, int]) -> None:
        searched.extend([len(gc.get_objects())] if phase == "start" and about["generation"] == 2 else [])

    correct_holm([0.5])  # loads what it needs
    gc.collect()
    known = len(gc.get_objects())
    gc.callbacks.append(note)
    try:
        assert correct_holm([0.01, 0.04]) == pytest.approx([0.02, 0.04])
    finally:
        gc.callbacks.remove(note)
    assert searched and max(searched) < known / 2, "only what has come since"
    assert len(gc.get_objects()) > known / 2, "later collections search all again"
