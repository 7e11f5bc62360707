"""The A/A trial: its tests, on runs of a machine that is made up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pandas as pd

from benchmarks import aa
from reports.analysis.statistics import Difference
from reports.analysis.table import LEVEL
from reports.reading.columns import make_run_frame

SEEDS = 10


def draw_runs(draw: random.Random, *, is_slower: float = 1.0, busy: float = 0.6) -> pd.DataFrame:
    """Runs seed by seed, names in random order, on a machine that others slow down half of the time."""
    rows: list[dict[str, Any]] = []
    is_busy = draw.random() < 0.5
    begin = pd.Timestamp("2026-11-24T12:00:00+00:00")
    for seed in range(SEEDS):
        for rate in draw.sample(aa.RATES, 2):
            is_busy ^= draw.random() < 0.3
            number = len(rows)
            speed = 100 * (busy if is_busy else 1.0) * draw.lognormvariate(0, 0.02)
            rows.append(
                {
                    **{"sweep": "s", "run": f"r{number}", "directory": f"s/runs/r{number}", "status": "done"},
                    **{"started": str(begin + pd.Timedelta(seconds=10 * number)), "few_steps": False},
                    "ended": str(begin + pd.Timedelta(seconds=10 * number + 6)),
                    "iterations_per_second": speed / (is_slower if rate == aa.RATES[1] else 1.0),
                    **{"oversubscribed": False, "shared_cores": False, "disturbed": is_busy},
                    **{"seed": seed, "workers": 2, "compressor": "none", aa.KEY: float(rate)},
                }
            )
    return make_run_frame(rows)


def count_found(gaps: Iterable[Difference | None]) -> int:
    return sum(gap is not None and gap.p < LEVEL for gap in gaps)


def test_equal_work_is_seldom_called_different() -> None:
    draw = random.Random(7)
    gaps = [aa.compare_as_reports_do(draw_runs(draw)) for _ in range(100)]
    tested = [gap for gap in gaps if gap is not None and gap.n > 1]
    assert len(tested) > 80 and all(gap.n < SEEDS for gap in tested), "marked runs are left out"
    assert count_found(tested) <= 10, "5 are expected"


def test_a_real_difference_is_found_better_without_the_marked_runs() -> None:
    draw = random.Random(8)
    runs = [draw_runs(draw, is_slower=1.1) for _ in range(20)]
    every = [aa.compare_as_reports_do(each.assign(disturbed=False)) for each in runs]
    by_seed = [aa.compare_by_seed(each) for each in runs]
    assert all(gap is not None and gap.n == SEEDS for gap in (*every, *by_seed))
    assert count_found(map(aa.compare_as_reports_do, runs)) >= 14 > 8 >= max(count_found(every), count_found(by_seed))
    assert aa.compare_as_reports_do(runs[0].assign(disturbed=True)) is None
