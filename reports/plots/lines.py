"""Make lines from the rows of runs: the mean over the seeds of a cell with its band, or a summary of many lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gradsweep import run_directory
from reports.analysis.statistics import compute_band, stretch_band
from reports.analysis.targets import split_by_run

MAX_LINES = 40  # of one label in a panel; more are summed up
_MAX_POINTS = 200  # of one line; more make no visible difference
_MAX_OUTLINE = 40  # of one in a backdrop

RunKey = tuple[str, str]
"""Sweep and name of a run."""
RunPoints = Mapping[RunKey, np.ndarray]
"""The points of each run, (points, 2), with ascending x."""


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a plot.

    Attributes:
        x, y: (points,).
        low, high: the band around it, (points,); None without a band.
        is_done: whether the line shows finished runs.
    """

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    is_done: bool = True

    @property
    def points(self) -> np.ndarray:
        """The points of the line, (points, 2)."""
        return np.column_stack([self.x, self.y])


def collect_points(frame: pd.DataFrame, x: str, y: str) -> RunPoints:
    """Return the finite points (x, y) of every run in `Report.epochs` or `Report.profile`."""
    is_finite = np.isfinite(frame[[x, y]].to_numpy("float64", na_value=np.nan)).all(1)
    return split_by_run(frame[is_finite], [x, y])


def make_lines(runs: pd.DataFrame, points: RunPoints, is_log: bool = False) -> dict[str, Sequence[Line]]:
    """Return the lines of each label: one for the finished runs of each cell, and one for each other run.

    If a label has more than `MAX_LINES`, two lines replace them: the median of those of finished runs, with a band of
    the middle 80 %, and likewise the median of the others. With `is_log`, intervals are computed on the log scale.
    """
    found: dict[str, list[Line]] = {}
    done: dict[tuple[str, int], list[np.ndarray]] = {}
    for label, cell, run, status in zip(runs["label"], runs["cell"], name_runs(runs), runs["status"], strict=True):
        lines = found.setdefault(label, [])
        if (line := points.get(run)) is None or not line[:, 0].any():
            continue
        if status == run_directory.DONE:
            done.setdefault((label, cell), []).append(line)
        else:
            x, y = _thin(line).T
            lines.append(Line(x, y, is_done=False))
    for (label, _), members in done.items():
        found[label].append(_average_runs(members, is_log))
    return {label: _limit_lines(lines) for label, lines in found.items()}


def _limit_lines(lines: Sequence[Line]) -> Sequence[Line]:
    if len(lines) <= MAX_LINES:
        return lines
    groups = ([line for line in lines if line.is_done == is_done] for is_done in (True, False))
    return [_take_median(group) for group in groups if group]


def make_outline(lines: Sequence[Line]) -> list[np.ndarray]:
    """Return a label's lines as one line of few points, (points, 2), for the backdrop of other labels' axes."""
    return [_thin(_take_median(lines).points, _MAX_OUTLINE)] if lines else []


def average_groups(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of each group of values and its 95 % interval, (groups,) each; NaN as in `compute_band`."""
    table = np.full((max(map(len, groups), default=0), len(groups)), np.nan)
    for place, values in enumerate(groups):
        table[: len(values), place] = values
    return compute_band(table)


def find_shown(runs: pd.DataFrame, points: RunPoints) -> pd.Series:
    """Tell which runs have a line: those with points that are not all at x = 0."""
    found = (points.get(run) for run in name_runs(runs))
    return pd.Series([line is not None and bool(line[:, 0].any()) for line in found], runs.index, dtype=bool)


def name_runs(runs: pd.DataFrame) -> list[RunKey]:
    """Return the keys of these runs in a `RunPoints`."""
    return list(zip(runs["sweep"], runs["run"], strict=True))


def _average_runs(lines: Sequence[np.ndarray], is_log: bool) -> Line:
    """Return the mean of some runs' lines with its 95 % interval; a single line is its own mean."""
    if len(lines) == 1:
        return Line(*_thin(lines[0]).T)
    x, values = _interpolate(lines)
    mean, low, high = compute_band(values)
    if is_log:
        low, high = stretch_band(mean, low, high)
    return Line(x, mean, low, high)


def _take_median(lines: Sequence[Line]) -> Line:
    if len(lines) == 1:
        return lines[0]
    x, values = _interpolate([line.points for line in lines])
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9), axis=0)
    return Line(x, middle, low, high, lines[0].is_done)


def _interpolate(lines: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return x (points,) in the common range of all lines, and the lines' interpolated y there: (lines, points).

    The x are those of the lines themselves, so that nothing is interpolated if all have the same.
    """
    first, last = max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines)
    if first >= last:  # nothing in common: the ends are compared
        return np.array([np.mean([line[-1, 0] for line in lines])]), np.array([[line[-1, 1]] for line in lines])
    x = np.unique(np.concatenate([line[:, 0] for line in lines]))
    x = _thin(x[(x >= first) & (x <= last)])
    return x, np.stack([np.interp(x, line[:, 0], line[:, 1]) for line in lines])


def _thin(points: np.ndarray, most: int = _MAX_POINTS) -> np.ndarray:
    """Return at most this number of the points, including the first and the last."""
    if len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(int)]
