"""Collect the data of a page's plots by cell: means over seeds, with 95 % intervals if there are several seeds.

Curves are thinned so that the page does not become too large: 60 points each, fewer if there are many curves.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gradsweep import csv_columns, run_directory
from reports.analysis.grid import Grid, find_centralised
from reports.analysis.measures import RACED, compute_efficiency, find_own_intervals, select_measured, select_once
from reports.analysis.statistics import compute_band, compute_quantiles
from reports.analysis.targets import split_by_run
from reports.page.assets import convert_numbers, round_digits, thin_places
from reports.reading.columns import list_metrics
from reports.reading.text import format_settings

MEASURES = (
    "accuracy",
    "best_accuracy",
    "loss",
    "iterations_per_second",
    "samples_per_second",
    "efficiency",
    "time_s",
    "payload_bytes",
    "sent_bytes",
    "compression_ratio",
    "compression_error",
    "local_accuracy",
    "local_accuracy_least",
    "consensus_distance",
    "peak_memory",
    "step_s",
    *(f"{phase}_s" for phase in csv_columns.PHASES),
)
X = ("step", "epoch", "tokens", "time_s", "sent_bytes")
Y = ("test_accuracy", "test_loss", "train_loss", "local_test_accuracy", "consensus_distance")
PROFILE_X, PROFILE_Y = ("step",), ("compression_error", "memory_norm")
_POINTS, _FEWEST = 60, 12  # of a curve
_ROOM = 300_000  # numbers in the curves of all cells; as many in those of runs, and in the profiles


def collect_cells(grid: Grid, epochs: pd.DataFrame, profile: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one entry for each cell, in the order of the tables.

    `values` has (mean, low, high) of each of `MEASURES`, and of metrics, over the finished runs; those of `RACED` are
    over the runs that measured them, `timed` in number, which a race also takes from runs that were not trained.
    `counts` has the number of all its runs by status. `curve` and `profile` have, if they were recorded, columns of
    equal length; the columns of `Y` are (means, lows, highs). A cell with a single run has lows and highs of
    throughputs only. The curve of a cell without a finished run is that of its unfinished runs. `central` is true of
    cells without a topology if other cells have one.
    """
    statuses = list(grid.runs["status"])
    members = list(grid.runs.groupby("cell", sort=False).indices.values())
    finished = [[row for row in rows if statuses[row] == run_directory.DONE] for rows in members]
    shown = [done or list(rows) for done, rows in zip(finished, members, strict=True)]
    wanted = [*MEASURES, *list_metrics(grid.runs)]
    measured = grid.runs.assign(efficiency=compute_efficiency(grid))[wanted].to_numpy("float64")
    values = _compute_bands([measured[done] for done in finished])
    timed = _find_timed(grid.runs, members)
    is_raced = np.array([name in RACED for name in wanted])
    for means, of_timed in zip(values, _compute_bands([measured[rows] for rows in timed]), strict=True):
        means[:, is_raced] = of_timed[:, is_raced]
    _add_own_intervals(grid.runs, timed, values)
    x, y = list_x(epochs), _find_recorded(epochs)
    curves = _average_curves(_split_by_run(grid, epochs, x, y), shown, x, y)
    profiles = _average_curves(_split_by_run(grid, profile, PROFILE_X, PROFILE_Y), shown, PROFILE_X, PROFILE_Y)
    names = {key: format_settings(grid.runs[key]) for key in ("label", "workers", *grid.keys)}
    is_central = list(find_centralised(grid.runs))
    return [
        {
            "label": names["label"][rows[0]],
            "workers": names["workers"][rows[0]],
            "keys": [names[key][rows[0]] for key in grid.keys],
            **({"central": True} if is_central[rows[0]] else {}),
            "runs": [int(row) for row in rows],
            "done": len(done),
            "timed": len(own),
            "counts": collections.Counter(statuses[row] for row in rows),
            "values": {
                name: convert_numbers(triple if np.isfinite(triple[1]) else triple[:1])
                for name, triple in zip(wanted, means.T, strict=True)
                if np.isfinite(triple[0])
            },
            "curve": curve,
            "profile": errors,
        }
        for rows, done, own, means, curve, errors in zip(
            members, finished, timed, values, curves, profiles, strict=True
        )
    ]


def collect_samples(grid: Grid, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of each run of the cells that have several, for means over some of them.

    Args:
        cells: of `collect_cells`.

    Returns:
        The `names` of the values, and which of them are `raced`; by row, the run's values (None: not measured, or not
        finished), the race that it took them from, and the ends of its throughput's own interval, times the throughput.
    """
    runs = grid.runs
    names = [*MEASURES, *list_metrics(runs)]
    table = round_digits(runs.assign(efficiency=compute_efficiency(grid))[names].to_numpy("float64"))
    for place, name in enumerate(names):
        table[~select_measured(runs, name).to_numpy(bool), place] = np.nan
    races = runs.groupby(["sweep", "race", "raced_by"], sort=False).ngroup().where(runs["raced_by"].notna(), -1)
    speeds = runs[["throughput_low", "throughput_high", "iterations_per_second"]].to_numpy("float64", na_value=np.nan)
    own = round_digits(speeds[:, :2] / speeds[:, 2:])
    return {
        "names": names,
        "raced": [name for name in names if name in RACED],
        "rows": {
            str(row): {
                "values": convert_numbers(table[row]),
                "race": int(races.iloc[row]) if races.iloc[row] >= 0 else None,
                "own": convert_numbers(own[row]) if np.isfinite(own[row]).all() else None,
            }
            for row in _list_repeated(cells)
        },
    }


def _list_repeated(cells: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the rows of the runs whose cell has several."""
    return [row for cell in cells if len(cell["runs"]) > 1 for row in cell["runs"]]


def list_quantiles(cells: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the factors of the 95 % intervals of 2, 3, ... runs, up to the most of a cell."""
    counts = np.arange(2, max((len(cell["runs"]) for cell in cells), default=0) + 1)
    return [float(value) for value in round_digits(compute_quantiles(counts), 6)] if len(counts) else []


def _find_timed(runs: pd.DataFrame, cells: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each cell the positions of the runs that measured its throughput; a race's figure counts once."""
    is_timed = select_once(runs, "iterations_per_second").to_numpy(bool)
    return [[row for row in rows if is_timed[row]] for rows in cells]


def _add_own_intervals(runs: pd.DataFrame, cells: Sequence[Sequence[int]], values: Sequence[np.ndarray]) -> None:
    """Set low and high of the throughputs in `values`, (3, n) for each cell, if a single run has measured them."""
    rows = [row for members in cells for row in members]
    own = np.full((len(runs), 2), np.nan)
    own[rows] = find_own_intervals(runs.iloc[rows])
    own /= runs["iterations_per_second"].to_numpy("float64", na_value=np.nan)[:, None]
    places = [MEASURES.index(name) for name in ("iterations_per_second", "samples_per_second")]
    for members, means in zip(cells, values, strict=True):
        if len(members) == 1 and np.isfinite(own[members[0]]).all():
            means[1:, places] = round_digits(means[0, places] * own[members[0]][:, None])


def collect_run_curves(grid: Grid, epochs: pd.DataFrame) -> dict[str, Any]:
    """Return the curves of single runs, by row of `grid.runs`; of too many, those of unfinished runs first."""
    return _thin_curves(grid, epochs, list_x(epochs), _find_recorded(epochs))


def collect_run_profiles(grid: Grid, profile: pd.DataFrame, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the profiles of those runs whose cell has several, by row of `grid.runs`."""
    return _thin_curves(grid, profile, PROFILE_X, PROFILE_Y, set(_list_repeated(cells)))


def _thin_curves(
    grid: Grid, frame: pd.DataFrame, x: Sequence[str], y: Sequence[str], only: Collection[int] | None = None
) -> dict[str, Any]:
    curves = _split_by_run(grid, frame, x, y)
    curves = {row: curve for row, curve in curves.items() if only is None or row in only}
    width = len(x) + len(y)
    points = max(_FEWEST, min(_POINTS, _ROOM // max(len(curves) * width, 1)))
    most = _ROOM // (width * points)
    is_done = (grid.runs["status"] == run_directory.DONE).to_numpy()
    rows = sorted(curves, key=lambda row: (bool(is_done[row]), row))[:most]
    found = {}
    for row in rows:
        columns = round_digits(curves[row][list(thin_places(len(curves[row]), points))]).T
        found[str(row)] = dict(zip((*x, *y), map(convert_numbers, columns), strict=True))
    return {"curves": found, "left_out": len(curves) - len(rows)}


def list_x(epochs: pd.DataFrame) -> list[str]:
    """Return those of the columns `X` that evaluations have."""
    return [name for name in X if name in epochs]


def _find_recorded(epochs: pd.DataFrame) -> list[str]:
    """Return the columns among `Y` and the metrics that have values for some run."""
    return [name for name in (*Y, *list_metrics(epochs)) if epochs[name].notna().any()]


def _split_by_run(grid: Grid, frame: pd.DataFrame, x: Sequence[str], y: Sequence[str]) -> dict[int, np.ndarray]:
    """Return the rows of each run, by the run's position in the grid; in `frame` the rows of a run are adjacent.

    Rows without any value are left out before the curve is thinned.
    """
    places = {place: row for row, place in enumerate(zip(grid.runs["sweep"], grid.runs["run"], strict=True))}
    frame = frame.reindex(columns=["sweep", "run", *x, *y])
    found = split_by_run(frame[frame[list(y)].notna().any(axis=1)], [*x, *y])
    return {places[name]: part for name, part in found.items() if name in places}


def _average_curves(
    curves: Mapping[int, np.ndarray], cells: Sequence[Sequence[int]], x: Sequence[str], y: Sequence[str]
) -> list[dict[str, Any] | None]:
    """Return the mean curve of each cell's runs; None if none of them has a curve."""
    points = max(_FEWEST, min(_POINTS, _ROOM // max(len(cells) * (len(x) + 3 * len(y)), 1)))
    stacks = [_align([curves[row] for row in rows if row in curves], points) for rows in cells]
    flat = _compute_bands([stack.reshape(len(stack), math.prod(stack.shape[1:])) for stack in stacks])
    found: list[dict[str, Any] | None] = []
    for stack, bands in zip(stacks, flat, strict=True):
        columns: dict[str, Any] = {"n": len(stack)}
        sides = bands.reshape(3, *stack.shape[1:])
        for place, name in enumerate((*x, *y) if len(stack) else ()):
            if name in x:
                columns[name] = convert_numbers(sides[0, :, place])
            elif np.isfinite(sides[0, :, place]).any():
                columns[name] = [convert_numbers(side[:, place]) for side in sides[: 3 if len(stack) > 1 else 1]]
        found.append(columns if len(stack) else None)
    return found


def _align(parts: Sequence[np.ndarray], points: int) -> np.ndarray:
    """Bring curves (rows, columns) to common values of their first column, (runs, points, columns); gaps become NaN."""
    parts = [part[np.isfinite(part[:, 0])] for part in parts]
    parts = [part for part in parts if len(part)]
    if not parts:
        return np.empty((0, 0, 0))
    if all(np.array_equal(part[:, 0], parts[0][:, 0]) for part in parts):  # the usual case
        return np.stack(parts)[:, list(thin_places(len(parts[0]), points))]
    every = np.unique(np.concatenate([part[:, 0] for part in parts]))
    grid = every[list(thin_places(len(every), points))]
    stack = np.full((len(parts), len(grid), parts[0].shape[1]), np.nan)
    for curve, part in zip(stack, parts, strict=True):
        here = np.searchsorted(part[:, 0], grid).clip(max=len(part) - 1)
        known = part[here, 0] == grid
        curve[known] = part[here[known]]
    return stack


def _compute_bands(groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return mean, low and high, (3, n), of each cell's curves, (runs, n); all NaN without runs.

    Cells with the same number of runs are computed at once.
    """
    found = [np.full((3, group.shape[1]), np.nan) for group in groups]
    for count in {len(group) for group in groups} - {0}:
        places = [place for place, group in enumerate(groups) if len(group) == count]
        ends = np.cumsum([groups[place].shape[1] for place in places])[:-1]
        bands = round_digits(np.stack(compute_band(np.concatenate([groups[place] for place in places], axis=1))))
        for place, part in zip(places, np.split(bands, ends, axis=1), strict=True):
            found[place] = part
    return found
