"""The cells of a page, from which its plots are drawn: means over seeds, with 95 % intervals where there are several.

Curves are thinned until a page can hold them: 60 points each, fewer where there are many.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.grid import Grid
from reports.page.assets import short, thinned
from reports.statistics import band
from reports.text import setting
from sweep import run as rundir

MEASURES = (
    "accuracy",
    "best_accuracy",
    "loss",
    "iterations_per_second",
    "samples_per_second",
    "time_s",
    "payload_bytes",
    "sent_bytes",
    "compression_ratio",
    "compression_error",
    "step_s",
    *(f"{phase}_s" for phase in rundir.PHASES),
)
X, Y = ("epoch", "time_s", "sent_bytes"), ("test_accuracy", "test_loss", "train_loss")
PROFILE_X, PROFILE_Y = ("step",), ("compression_error", "memory_norm")
_POINTS, _FEWEST = 60, 12  # of a curve
_ROOM = 400_000  # numbers in the curves of all cells; as many again for those of runs, and for the profiles


def cells(grid: Grid, epochs: pd.DataFrame, profile: pd.DataFrame) -> list[dict[str, Any]]:
    """One entry per cell, in the order of the tables.

    `values` are mean, low and high of each of `MEASURES` over the runs that are done; `counts` are the
    statuses of all its runs; `curve` and `profile` hold, where they were recorded, columns of equal
    length, of which those of `Y` are (mean, low, high). The curve of a cell without a finished run is
    that of its unfinished ones.
    """
    curves, profiles = _by_run(grid, epochs, (*X, *Y)), _by_run(grid, profile, (*PROFILE_X, *PROFILE_Y))
    done = (grid.runs["status"] == rundir.DONE).to_numpy()
    measured = grid.runs[list(MEASURES)].to_numpy("float64")
    groups = grid.runs.groupby("cell", sort=False).indices
    points = _points(len(groups), len(X) + 3 * len(Y))
    found = []
    for rows in groups.values():
        first, finished = grid.runs.iloc[rows[0]], [row for row in rows if done[row]]
        shown = finished or list(rows)
        found.append(
            {
                "label": first["label"],
                "workers": setting(first["workers"]),
                "keys": [setting(first[key]) for key in grid.keys],
                "runs": [int(row) for row in rows],
                "done": len(finished),
                "counts": collections.Counter(grid.runs["status"].iloc[rows]),
                "values": _values(measured[finished]),
                "curve": _mean([curves[row] for row in shown if row in curves], X, Y, points),
                "profile": _mean([profiles[row] for row in shown if row in profiles], PROFILE_X, PROFILE_Y, points),
            }
        )
    return found


def single(grid: Grid, epochs: pd.DataFrame) -> dict[str, Any]:
    """The curves of single runs, by row, as many as there is room for: those of runs that are not done first."""
    curves = _by_run(grid, epochs, (*X, *Y))
    most = _ROOM // ((len(X) + len(Y)) * _POINTS)
    is_done = (grid.runs["status"] == rundir.DONE).to_numpy()
    rows = sorted(curves, key=lambda row: bool(is_done[row]))[:most]
    found = {}
    for row in rows:
        columns = curves[row][list(thinned(len(curves[row]), _POINTS))].T
        found[str(row)] = dict(zip((*X, *Y), map(short, columns), strict=True))
    return {"curves": found, "left_out": len(curves) - len(rows)}


def _points(curves: int, columns: int) -> int:
    return max(_FEWEST, min(_POINTS, _ROOM // max(curves * columns, 1)))


def _by_run(grid: Grid, frame: pd.DataFrame, columns: Sequence[str]) -> dict[int, np.ndarray]:
    """The rows of each run, by the run's place in the grid; a run's rows lie together in `frame`."""
    places = {place: row for row, place in enumerate(zip(grid.runs["sweep"], grid.runs["run"], strict=True))}
    values = frame.reindex(columns=list(columns)).to_numpy("float64", na_value=np.nan)
    codes = np.stack([frame[key].cat.codes.to_numpy() for key in ("sweep", "run")])
    starts = np.flatnonzero(np.diff(codes, prepend=-2).any(axis=0)) if len(frame) else []
    names = zip(*(frame[key].take(starts) for key in ("sweep", "run")), strict=True)
    parts = np.split(values, starts[1:]) if len(starts) else []
    return {places[name]: part for name, part in zip(names, parts, strict=True) if name in places}


def _values(measured: np.ndarray) -> dict[str, Any]:
    triples = _band(measured)
    return {name: short(triple) for name, triple in zip(MEASURES, triples.T, strict=True) if np.isfinite(triple[0])}


def _mean(curves: Iterable[np.ndarray], x: Sequence[str], y: Sequence[str], points: int) -> dict[str, Any] | None:
    """The mean of curves of one cell, at the values of its first column that any of them has."""
    parts = [part for part in curves if len(part)]
    if not parts:
        return None
    whole = np.unique(np.concatenate([part[:, 0] for part in parts]))
    whole = whole[np.isfinite(whole)]
    grid = whole[list(thinned(len(whole), points))]
    stack = np.full((len(parts), len(grid), len(x) + len(y)), np.nan)
    for curve, part in zip(stack, parts, strict=True):
        ordered = part[np.argsort(part[:, 0], kind="stable")]
        here = np.searchsorted(ordered[:, 0], grid).clip(max=len(part) - 1)
        known = ordered[here, 0] == grid
        curve[known] = ordered[here[known]]
    bands = _band(stack.reshape(len(parts), -1)).reshape(3, len(grid), -1)
    columns: dict[str, Any] = {"n": len(parts)}
    for place, name in enumerate((*x, *y)):
        means = short(bands[0, :, place])
        if name in x:
            columns[name] = means
        elif any(value is not None for value in means):
            several = len(parts) > 1
            columns[name] = [means, *(short(bands[side, :, place]) for side in (1, 2) if several)]
    return columns


def _band(values: np.ndarray) -> np.ndarray:
    """(runs, n) as (3, n): mean, low and high; all NaN where there is no run."""
    return np.stack(band(values)) if len(values) else np.full((3, values.shape[1]), np.nan)
