"""Compare runs at equal epochs, training time or bytes sent, and find the cost of reaching a target accuracy.

Only evaluations count: the accuracy of a run at 10 s is that of its last evaluation until then, and the run has reached
90 % when an evaluation says so. Nothing is interpolated, because nobody has measured a number between two evaluations.
So a run may in truth be up to one evaluation better than its figure: evaluate often if that matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

RUN = ["sweep", "run"]
"""The columns that name a run in `Report.epochs`, and the index of the results of this module."""

_ROUND = (*(tenths / 10 for tenths in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 0.999)
_SLACK = 1 + 1e-12  # for sums that were rounded differently


def is_evaluated_by_step(epochs: pd.DataFrame) -> bool:
    """Tell whether some run was evaluated several times in an epoch (evaluate_every_steps)."""
    return bool(epochs.duplicated([*RUN, "epoch"]).any())


def compare_at_equal(epochs: pd.DataFrame, by: str, comparison: pd.Series | None = None) -> pd.DataFrame:
    """Return the test accuracy of each run at the largest epoch, time or bytes that all compared runs have reached.

    Args:
        epochs: `Report.epochs` of the runs to compare; a run that stopped early would limit all others.
        by: `epoch`, `time_s` or `sent_bytes`.
        comparison: the group of each run, by `RUN`: only runs of one group are compared; without it, all runs are.

    Returns:
        By `RUN`: `at`, the largest value of `by` that all runs of the group have reached, and `accuracy` at the last
        evaluation up to it; NaN if there is none.
    """
    points = _select_points(epochs, by)
    runs = points.groupby(RUN, observed=True)
    reached = _use_plain_index(runs[by].max())
    which = np.zeros(len(reached)) if comparison is None else comparison.reindex(reached.index).to_numpy()
    common = reached.groupby(which, dropna=False).transform("min")
    limits = common.to_numpy()[runs.ngroup().to_numpy()]
    until = points[points[by].to_numpy() <= limits * _SLACK]
    accuracy = _use_plain_index(until.groupby(RUN, observed=True)["test_accuracy"].last())
    return pd.DataFrame({"at": common, "accuracy": accuracy.reindex(common.index)})


def find_cost_of_target(epochs: pd.DataFrame, column: str, target: float) -> pd.Series:
    """Return the epoch, time or bytes of each run at its first evaluation with a test accuracy of at least `target`.

    Args:
        epochs: `Report.epochs`.
        column: `epoch`, `time_s` or `sent_bytes`.
        target: a share, 0.9 for 90 %.

    Returns:
        By `RUN`, without the runs that did not reach the target.
    """
    points = _select_points(epochs, column)
    return _use_plain_index(points[points["test_accuracy"] >= target].groupby(RUN, observed=True)[column].first())


def choose_targets(best: pd.Series) -> list[float]:
    """Return the two highest round accuracies that at least half of the runs reach.

    Args:
        best: the best accuracy of each run; NA if it has none.
    """
    known = best.dropna()
    middle = np.sort(known.to_numpy("float64"))[len(known) // 2] if len(known) else 0.0
    return [target for target in _ROUND if target <= middle][-2:]


def get_last_values(epochs: pd.DataFrame, column: str) -> pd.Series:
    """Return the last value of a cumulative column for each run, by `RUN`."""
    known = epochs.loc[epochs[column].notna(), [*RUN, column]]
    return _use_plain_index(known.groupby(RUN, observed=True)[column].last().astype("float64"))


def select_runs(epochs: pd.DataFrame, runs: pd.MultiIndex) -> pd.DataFrame:
    """Return the rows of `epochs` that belong to these runs (an index by `make_run_index`)."""
    groups = epochs.groupby(RUN, observed=True)
    return epochs[_use_plain_index(groups.size()).index.isin(runs)[groups.ngroup().to_numpy()]]


def split_by_run(frame: pd.DataFrame, columns: Sequence[str]) -> dict[tuple[str, str], np.ndarray]:
    """Return for each (sweep, run) the values of these columns, (rows, columns); the rows of a run must be adjacent."""
    values = frame[list(columns)].to_numpy("float64", na_value=np.nan)
    codes = frame.groupby(RUN, observed=True, sort=False).ngroup().to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    names = zip(*(frame[column].iloc[starts] for column in RUN), strict=True)
    parts = np.split(values, starts[1:]) if len(starts) else []
    return {(str(sweep), str(run)): part for (sweep, run), part in zip(names, parts, strict=True)}


def make_run_index(runs: pd.DataFrame) -> pd.MultiIndex:
    """Return an index of the rows of `Report.runs` by sweep and run."""
    return pd.MultiIndex.from_frame(runs[RUN].astype("object"))


def _select_points(epochs: pd.DataFrame, column: str) -> pd.DataFrame:
    points = epochs[[*RUN, column, "test_accuracy"]].astype({column: "float64", "test_accuracy": "float64"})
    return points[np.isfinite(points[column]) & np.isfinite(points["test_accuracy"])]


def _use_plain_index(values: pd.Series) -> pd.Series:
    """Return `values` with an index of plain names in place of categories, which are needed only to group faster."""
    return values.set_axis(make_run_index(values.index.to_frame(index=False)))
