"""Comparison at equal progress, and what a target costs."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from reports.analysis import targets


def epochs(**runs: list[tuple[float, float, float]]) -> pd.DataFrame:
    """By run, the time, bytes and accuracy of each evaluation."""
    rows = [
        {"sweep": "s", "run": run, "epoch": epoch, "time_s": time, "sent_bytes": sent, "test_accuracy": accuracy}
        for run, points in runs.items()
        for epoch, (time, sent, accuracy) in enumerate(points, 1)
    ]
    return pd.DataFrame(rows).astype({"sweep": "category", "run": "category", "epoch": "Int64"})


FAST = [(1.0, 50.0, 0.5), (2.0, 100.0, 0.8), (3.0, 150.0, 0.7)]
SLOW = [(2.0, 10.0, 0.4), (4.0, 20.0, 0.6)]


def found(frame: pd.DataFrame, run: str) -> tuple[float, float]:
    row = frame.loc[("s", run)]
    return float(row["at"]), float(row["accuracy"])


@pytest.mark.parametrize(
    ("by", "fast", "slow"),
    [
        ("epoch", (2, 0.8), (2, 0.6)),
        ("time_s", (3.0, 0.7), (3.0, 0.4)),  # of slow the evaluation at 2 s, not one between 2 and 4
        ("sent_bytes", (20.0, math.nan), (20.0, 0.6)),  # fast had sent more before it was evaluated once
    ],
)
def test_the_last_evaluation_that_all_have_come_to(
    by: str, fast: tuple[float, float], slow: tuple[float, float]
) -> None:
    frame = targets.compare_at_equal(epochs(fast=FAST, slow=SLOW), by)
    assert found(frame, "fast") == pytest.approx(fast, nan_ok=True)
    assert found(frame, "slow") == pytest.approx(slow, nan_ok=True)


def test_only_compared_runs_limit_each_other() -> None:
    which = pd.Series([0, 0, 1], pd.MultiIndex.from_tuples([("s", "fast"), ("s", "again"), ("s", "slow")]))
    frame = targets.compare_at_equal(epochs(fast=FAST, again=FAST[:2], slow=SLOW), "time_s", which)
    assert (found(frame, "fast"), found(frame, "again"), found(frame, "slow")) == ((2, 0.8), (2, 0.8), (4, 0.6))


def test_evaluations_without_a_number_are_none() -> None:
    torn = [(1.0, 1.0, 0.5), (2.0, 2.0, math.nan), (math.inf, 3.0, 0.9)]
    assert found(targets.compare_at_equal(epochs(torn=torn, slow=SLOW), "time_s"), "torn") == (1.0, 0.5)
    assert targets.compare_at_equal(epochs(fast=FAST).iloc[:0], "epoch").empty


def test_a_target_costs_what_was_spent_at_the_first_evaluation_that_reached_it() -> None:
    both = epochs(fast=FAST, slow=SLOW)
    assert targets.find_cost_of_target(both, "time_s", 0.6).to_dict() == {("s", "fast"): 2.0, ("s", "slow"): 4.0}
    assert targets.find_cost_of_target(both, "sent_bytes", 0.6).to_dict() == {("s", "fast"): 100.0, ("s", "slow"): 20.0}
    assert targets.find_cost_of_target(both, "time_s", 0.8).to_dict() == {("s", "fast"): 2.0}, "reached exactly"
    assert targets.find_cost_of_target(both, "time_s", 0.81).empty


def test_targets_are_round_accuracies_that_half_of_the_runs_reach() -> None:
    assert targets.choose_targets(pd.Series([0.985, 0.97, 0.5])) == [0.9, 0.95]
    assert targets.choose_targets(pd.Series([0.985, 0.5])) == [0.95, 0.98]
    assert targets.choose_targets(pd.Series([0.985, math.nan])) == [0.95, 0.98]
    assert targets.choose_targets(pd.Series([0.15])) == [0.1]
    assert targets.choose_targets(pd.Series([0.05])) == targets.choose_targets(pd.Series([], dtype=float)) == []
