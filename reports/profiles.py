"""A long series of steps as few rows: what plots of it are drawn from."""

from __future__ import annotations

import numpy as np
import pandas as pd

BINS = 100  # at most, of a run
ENDS = ("step", "epoch", "time_s")
"""Columns that tell where a bin ends; all others are means over the steps in it."""


def profile(rows: pd.DataFrame, place: str) -> pd.DataFrame:
    """The rows of each run averaged in at most BINS bins of consecutive ones.

    Args:
        rows: `float64`, those of a run together and in order.
        place: the column that tells the runs apart.

    Returns:
        The same columns, one row per bin: of `place` and ENDS the value of its last row, of all others the mean of
        those that are a number, NaN where none is.
    """
    lengths = rows.groupby(place, sort=False).size().to_numpy()
    starts = np.concatenate(
        [edges(length)[:-1] + start for length, start in zip(lengths, _starts(lengths), strict=True)] or [[]]
    )
    starts = starts.astype(int)
    values = rows.to_numpy("float64")
    means = binned(values, starts)
    last = np.append(starts[1:], len(rows)) - 1 if len(starts) else starts
    for column in (place, *ENDS):
        position = rows.columns.get_loc(column)
        means[:, position] = values[last, position]
    return pd.DataFrame(means, columns=rows.columns)


def edges(length: int) -> np.ndarray:
    """Where the bins of so many rows begin, and the last ends; they differ by one row at most."""
    count = min(length, BINS)
    return np.arange(count + 1) * length // max(count, 1)


def binned(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Means of the rows (rows, columns) from each start up to the next, (starts, columns); NaN counts for nothing."""
    if not len(starts):
        return np.empty((0, values.shape[1]))
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        return sums / counts


def _starts(lengths: np.ndarray) -> np.ndarray:
    return (np.cumsum(lengths) - lengths).astype(int)
