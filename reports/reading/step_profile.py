"""Summarize a long series of steps in a few rows, for plots."""

from __future__ import annotations

import numpy as np

from gradsweep import csv_columns

BINS = 100  # at most, of a run
ENDS = ("step", "epoch", "time_s")
"""Columns with the value at the end of a bin; all others are means over the steps in it."""

_ENDS = [csv_columns.STEP_COLUMNS.index(name) for name in ENDS]


def average_steps(steps: np.ndarray) -> np.ndarray:
    """Average the steps of a run in at most BINS bins of consecutive steps, whose sizes differ by at most 1.

    Args:
        steps: (`gradsweep.csv_columns.STEP_COLUMNS`, steps).

    Returns:
        (`gradsweep.csv_columns.STEP_COLUMNS`, bins): for ENDS the value of the last step of a bin, for all others
        the mean of the known values, NaN if none is known.
    """
    length = steps.shape[1]
    if not length:
        return steps
    count = min(length, BINS)
    edges = np.arange(count + 1) * length // count
    unknown = np.isnan(steps)
    with np.errstate(invalid="ignore"):  # infinite losses, and bins where nothing is known
        sums = np.add.reduceat(np.where(unknown, 0.0, steps), edges[:-1], axis=1)
        means = sums / (np.diff(edges) - np.add.reduceat(unknown, edges[:-1], axis=1, dtype=np.int64))
    means[_ENDS] = steps[_ENDS][:, edges[1:] - 1]
    return means
