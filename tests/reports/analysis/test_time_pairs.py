"""Times are compared between runs that were made at about the same time."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import reports
from reports.analysis.cells import Cells
from reports.analysis.grid import lay_out_runs
from reports.analysis.measures import ACCURACY, THROUGHPUT, Measure
from reports.analysis.statistics import compare_cells, compare_ratios
from reports.analysis.time_pairs import find_middles, pair_in_time
from tests.reports import fabricate

SEEDS = 6


def pair(times: list[float], others: list[float], seeds: list[int] | None = None) -> list[tuple[int, int]]:
    own, base = (np.arange(len(each)) for each in (times, others))
    pairs = pair_in_time(np.array(times), own if seeds is None else np.array(seeds), np.array(others), base)
    return [(int(first), int(second)) for first, second in pairs]


def test_neighbours_in_time_are_pairs() -> None:
    assert pair([0.0, 10.0, 20.0], [21.0, 1.0, 11.0]) == [(0, 1), (1, 2), (2, 0)]
    assert pair([0.0, 10.0, 20.0], [9.0]) == [(1, 0)], "a run is in one pair at most"
    assert pair([5.0, 5.5], [5.1, 90.0]) == [(0, 1), (1, 0)] or pair([5.0, 5.5], [5.1, 90.0]) == [(0, 0), (1, 1)]
    assert pair([], [1.0]) == []


def test_seeds_decide_where_times_do_not() -> None:
    assert pair([7.0, 7.0, 7.0], [7.0, 7.0, 7.0], seeds=[2, 0, 1]) == [(0, 2), (1, 0), (2, 1)], "all at once"
    assert pair([100.0, 101.0], [0.0, 7.0], seeds=[1, 0]) == [(0, 1), (1, 0)], "of another day"
    assert pair([math.nan, 5.0], [5.0, 0.0]) == [(0, 0), (1, 1)], "when a run was made is not known"


def test_the_middle_of_a_run_is_that_of_its_time() -> None:
    runs = pd.DataFrame(
        {
            "started": pd.to_datetime(["2026-11-20T14:00:00+00:00", None], utc=True),
            "ended": pd.to_datetime(["2026-11-20T14:01:00+00:00", "2026-11-20T14:01:00+00:00"], utc=True),
        }
    )
    middles = find_middles(runs.astype("datetime64[us, UTC]"))
    assert middles[0] == pd.Timestamp("2026-11-20T14:00:30+00:00").timestamp() and math.isnan(middles[1])


def test_ratios_are_tested_by_their_logarithms() -> None:
    draw = np.random.default_rng(2)
    base = draw.lognormal(3, 1, 9)
    pairs = np.column_stack([base * draw.lognormal(0.1, 0.1, 9), base])
    (found,) = compare_ratios([pairs])
    logs = np.log(pairs[:, 0] / pairs[:, 1])
    tested = stats.ttest_1samp(logs, 0)
    level = stats.gmean(base)
    assert found is not None and found.p == pytest.approx(tested.pvalue)
    assert found.mean == pytest.approx(level * math.expm1(logs.mean()))
    assert (found.low, found.high) == pytest.approx([level * math.expm1(end) for end in tested.confidence_interval()])
    (plain,) = compare_cells([pairs])
    assert plain is not None and plain.p > 3 * found.p, "a busy machine slows both down by a factor"


def test_ratios_that_do_not_vary_and_values_without_a_logarithm() -> None:
    same, none, one = compare_ratios(
        [np.array([[2.0, 1.0], [4.0, 2.0]]), np.array([[0.0, 1.0]]), np.array([[3.0, 2.0]])]
    )
    assert same is not None and math.isnan(same.p) and same.mean == pytest.approx(math.sqrt(2)) and none is None
    assert one is not None and one.n == 1 and one.mean == pytest.approx(1.0) and math.isnan(one.p)


def make(tmp_path: Path) -> pd.DataFrame:
    """Runs of two compressors of equal speed on a machine that becomes slower; seeds of qsgd in the opposite order."""
    grid = [fabricate.config(name, seed=seed) for name in ("none", "qsgd") for seed in range(SEEDS)]
    runs = reports.load(fabricate.sweep(tmp_path / "s", grid)).runs
    draw = random.Random(1)
    minutes = [
        2 * seed if name == "none" else 2 * (SEEDS - seed) - 1
        for name, seed in zip(runs["compressor"], runs["seed"], strict=True)
    ]
    runs["started"] += pd.to_timedelta(minutes, unit="min")
    runs["ended"] += pd.to_timedelta(minutes, unit="min")
    slower = [1 + 0.1 * minute for minute in minutes]
    runs["iterations_per_second"] = [100 * draw.lognormvariate(0, 0.02) / factor for factor in slower]
    runs["accuracy"] = 0.9 + 0.01 * runs["seed"].astype("float64") + [0.001 * draw.random() for _ in minutes]
    return runs


def compute(runs: pd.DataFrame, measure: Measure) -> tuple[int, float]:
    grid = lay_out_runs(runs)
    (gap,) = (
        cell.difference
        for cell in Cells(grid, grid.runs, ("label", "workers")).compute_figures(measure)
        if cell.difference
    )
    return gap.n, gap.high - gap.low


def test_a_table_pairs_times_in_time_and_accuracy_by_seed(tmp_path: Path) -> None:
    runs = make(tmp_path)
    pairs, width = compute(runs, THROUGHPUT)
    rate = runs["iterations_per_second"].mean()
    assert pairs == SEEDS and width < 0.15 * rate, "by seed it would be as wide as the machine's drift"
    at_once = runs["started"].iloc[0]
    by_seed = runs.assign(started=at_once, ended=at_once)
    assert compute(by_seed, THROUGHPUT)[1] > 0.5 * rate
    pairs, width = compute(runs, ACCURACY)
    assert pairs == SEEDS and width < 0.01, "which differs by seed"


def test_runs_without_a_common_seed_are_pairs_in_time(tmp_path: Path) -> None:
    runs = make(tmp_path)
    runs.loc[runs["compressor"] == "qsgd", "seed"] += 100
    assert compute(runs, THROUGHPUT)[0] == SEEDS
    grid = lay_out_runs(runs)
    assert all(
        cell.difference is None for cell in Cells(grid, grid.runs, ("label", "workers")).compute_figures(ACCURACY)
    )


def test_of_two_baselines_with_one_seed_none_is_taken(tmp_path: Path) -> None:
    runs = make(tmp_path)
    grid = lay_out_runs(runs.assign(**{"optimizer.lr": [0.1, 0.2] * SEEDS}))
    twice = pd.concat([grid.runs, grid.runs[grid.runs["compressor"] == "none"]], ignore_index=True)
    cells = Cells(grid, twice, ("label", "workers"), {"compressor": "none"})
    assert all(cell.difference is None for cell in cells.compute_figures(THROUGHPUT))
