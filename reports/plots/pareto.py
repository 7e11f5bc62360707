"""Plot accuracy against cost, with the Pareto front: the cells that no other cell beats in both."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from gradsweep import run_directory
from gradsweep.text import plural
from reports.analysis.measures import THROUGHPUT, find_own_intervals, select_once
from reports.analysis.statistics import stretch_band
from reports.plots import layout as layouts
from reports.plots import marks
from reports.plots.curves import choose_middle_unit
from reports.plots.layout import GREY, SMALL, WIDE, Layout, escape_label
from reports.plots.lines import average_groups
from reports.plots.picture import Plot
from reports.reading.text import join_words

_MAX_NAMED = 40  # points of a panel with a name; above, only those of the front
_MAX_POINTS = 400  # of a panel; above, of the dominated ones one for each `_TILES`-th of both axes
_TILES = 60
_LIGHT = 0.35  # opacity of a point that another beats
_FRONT, _WIDTH = "#A8A8A8", 1.8
_STAIRS: dict[str, Any] = {"color": _FRONT, "linewidth": _WIDTH, "zorder": 1.4, "solid_joinstyle": "miter"}
_LETTER, _LINE = 4.1, 7.5  # points: width and height of a letter of a name
_LONGEST = 24  # characters of a name
_OFFSETS: tuple[tuple[float, float, str], ...] = (
    *((x, y, side) for y in (7, -7) for x, side in ((4, "left"), (-4, "right"))),  # beside the bars
    (6, 0, "left"),
    (-6, 0, "right"),
    *((x, y, side) for y in (15, -15) for x, side in ((4, "left"), (-4, "right"), (0, "center"))),
)
"""Offsets (points) and alignments of a name beside its point, the best first."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """An x axis: a column of the runs in `unit`, and whether a higher value is better."""

    name: str
    title: str
    column: str
    label: str
    unit: str
    more_is_better: bool


SPEED = Cost("throughput", "throughput", "samples_per_second", "throughput", "samples/s", True)
BYTES = Cost("bytes", "bytes sent", "sent_in_all", "sent by one worker in all", "B", False)


@dataclasses.dataclass(frozen=True)
class _Cloud:
    """The cells of a panel: `x` and `y` are mean, low and high, (3, cells); `is_best` marks the front, (cells,)."""

    labels: Sequence[str]
    x: np.ndarray
    y: np.ndarray
    is_best: np.ndarray


def plot_pareto(layout: Layout, cost: Cost) -> Plot | None:
    """Plot accuracy after the last epoch against a cost, with one mark for each cell; return None for fewer than two
    cells."""
    panels = [(title, runs) for title, runs in layout.panels if _select_measured(runs, cost)["cell"].nunique() > 1]
    if not panels:
        return None
    layout = dataclasses.replace(layout, panels=panels)
    columns = min(layout.columns, 2 if layout.has_many else 3)
    columns = math.ceil(len(panels) / math.ceil(len(panels) / columns))  # four panels are two rows of two
    height = 2.7 if layout.has_many else 2.3
    figure, axes = layouts.make_figure(layout, columns, height, "y", is_wide=layout.has_many)
    clouds = [_make_cloud(_select_measured(runs, cost), cost) for _, runs in panels]
    costs = np.concatenate([cloud.x[0] for cloud in clouds])
    size, unit = choose_middle_unit(costs) if cost.unit == "B" else (1.0, cost.unit)
    is_log = costs.max() > WIDE * costs.min()
    clouds = [dataclasses.replace(cloud, x=_stretch(cloud.x / size) if is_log else cloud.x / size) for cloud in clouds]
    for axis, cloud in zip(axes, clouds, strict=True):
        axis.margins(0.16, 0.14)
        if is_log:
            axis.set_xscale("log")
        else:
            axis.locator_params("x", nbins=5)
        axis.xaxis.set_major_formatter(layouts.PLAIN)
        axis.xaxis.set_minor_formatter(NullFormatter())
        _draw(axis, cloud, layout)
        if axis.get_xscale() == "log":
            layouts.label_more_ticks(axis)
    layouts.label_axes(axes, f"{cost.label} [{unit}]", "accuracy [%]", "y")
    points = (72 * (figure.get_figwidth() / min(columns, len(axes)) - 0.5), 72 * 0.7 * height)
    unnamed: set[str] = set()
    for axis, cloud, (_, runs) in zip(axes, clouds, panels, strict=True):
        stairs = _draw_front(axis, cloud, cost)
        unnamed |= _name_points(axis, cloud, stairs, layout, points)
        is_shown = pd.Series(runs.index.isin(_select_measured(runs, cost).index), runs.index)
        marks.name_absent(axis, runs, marks.choose_words(runs, is_shown), layout)
    if layout.has_many:  # their colours and marks could not be told apart
        named, hidden = [], f"{len(unnamed)} labels have no room for a name" if unnamed else ""
    else:
        named, hidden = [label for label in layout.looks if label in unnamed], ""
    explained = [
        *marks.make_label_marks({label: layout.looks[label] for label in named}, "none"),
        Line2D([], [], color=_FRONT, linewidth=_WIDTH, label="front: no other is better in both"),
        Line2D([], [], color=GREY, marker="o", linestyle="none", alpha=_LIGHT, label="not on it"),
    ]
    own = marks.describe_own(layout, "horizontal bars") if cost.column == SPEED.column else ""
    notes = (
        marks.describe_seeds(layout, "vertical bars" if own else "bars"),
        own,
        marks.describe_repeats(layout, "point"),
        hidden,
    )
    marks.draw_legend(figure, explained, *notes)
    fronts = [np.array(cloud.labels)[cloud.is_best].tolist() for cloud in clouds]
    told = [
        ": ".join(filter(None, (title.replace("\n", ", "), join_words(list(dict.fromkeys(front))))))
        for (title, _), front in zip(panels, fronts, strict=True)
    ]
    alt = f"Accuracy against {cost.title}, {plural(len(costs), 'point')}. On the front: {'; '.join(told)}."
    return Plot(f"pareto_{cost.name}", f"Accuracy against {cost.title}", alt, figure)


def find_front(cost: np.ndarray, value: np.ndarray, more_is_better: bool) -> np.ndarray:
    """Tell which points belong to the Pareto front, (points,): no other point is better in one value and as good in
    the other."""
    gain = cost if more_is_better else -cost
    order = np.lexsort((-value, -gain))  # the best gain first, of equals the best value
    best = np.concatenate([[-np.inf], np.maximum.accumulate(value[order])[:-1]])
    found = np.zeros(len(cost), bool)
    found[order] = value[order] > best
    return found


def _select_measured(runs: pd.DataFrame, cost: Cost) -> pd.DataFrame:
    runs = runs.assign(sent_in_all=runs["sent_bytes"] * runs["steps_done"].astype("float64"))
    return runs[(runs["status"] == run_directory.DONE) & (runs[cost.column] > 0)].dropna(subset="accuracy")


def _make_cloud(runs: pd.DataFrame, cost: Cost) -> _Cloud:
    cells = [cell for _, cell in runs.groupby("cell", sort=False)]
    once = select_once(runs, cost.column)
    x = np.stack(average_groups([cell.loc[once[cell.index], cost.column].to_numpy() for cell in cells]))
    if cost.column == SPEED.column:
        own = find_own_intervals(runs) * (runs[cost.column] / runs[THROUGHPUT.column]).to_numpy("float64")[:, None]
        own = own[~runs["cell"].duplicated().to_numpy()].T
        x[1:] = np.where(np.isfinite(own), own, x[1:])
    y = np.stack(average_groups([100 * cell["accuracy"].to_numpy() for cell in cells]))
    return _Cloud([cell["label"].iloc[0] for cell in cells], x, y, find_front(x[0], y[0], cost.more_is_better))


def _stretch(values: np.ndarray) -> np.ndarray:
    """Return mean, low and high, (3, cells), with intervals for a logarithmic axis."""
    return np.stack([values[0], *stretch_band(*values)])


def _draw_front(axis: Axes, cloud: _Cloud, cost: Cost) -> np.ndarray:
    """Draw the front as stairs to the edges of the axes: what is below it, another cell beats; return its corners,
    (2, corners).
    """
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    best = np.flatnonzero(cloud.is_best)
    best = best[np.argsort(cloud.x[0, best])]
    x, y = cloud.x[0, best], cloud.y[0, best]
    if cost.more_is_better:
        axis.step([left, *x, x[-1]], [y[0], *y, bottom], where="pre", **_STAIRS)
        corners = np.stack([[left, *np.repeat(x, 2)], [*np.repeat(y, 2), bottom]])
    else:
        axis.step([x[0], *x, right], [bottom, *y, y[-1]], where="post", **_STAIRS)
        corners = np.stack([[*np.repeat(x, 2), right], [bottom, *np.repeat(y, 2)]])
    axis.set(xlim=(left, right), ylim=(bottom, top))
    return corners


def _draw(axis: Axes, cloud: _Cloud, layout: Layout) -> None:
    labels = np.array(cloud.labels)
    shown = _thin_cloud(cloud)
    for label, look in layout.looks.items():
        for is_best, alpha in ((True, 1.0), (False, _LIGHT)):
            here = np.flatnonzero(shown & (labels == label) & (cloud.is_best == is_best))
            if len(here):
                (x, *x_ends), (y, *y_ends) = cloud.x[:, here], cloud.y[:, here]
                axis.plot(x, y, look.marker, color=look.colour, alpha=alpha, zorder=2 + is_best)
                line: dict[str, Any] = {"color": look.colour, "alpha": alpha, "linewidth": 0.8, "zorder": 1.9}
                axis.hlines(y, *x_ends, **line)
                axis.vlines(x, *y_ends, **line)


def _thin_cloud(cloud: _Cloud) -> np.ndarray:
    """Tell which cells are drawn: all, or if they are too many, the front and one cell for each tile."""
    if len(cloud.labels) <= _MAX_POINTS:
        return np.ones(len(cloud.labels), bool)
    tiles = pd.DataFrame({"label": cloud.labels, "x": pd.cut(np.log(cloud.x[0]), _TILES, labels=False)})
    tiles["y"] = pd.cut(cloud.y[0], _TILES, labels=False, duplicates="drop")
    return cloud.is_best | ~tiles.duplicated().to_numpy()


def _name_points(axis: Axes, cloud: _Cloud, stairs: np.ndarray, layout: Layout, size: tuple[float, float]) -> set[str]:
    """Write the names next to the marks, the front first, where they hide neither marks nor each other.

    They hide no interval and no part of the front either; a name of the front without such a place is on white paper.

    Args:
        stairs: the corners of the front, (2, corners).
        size: approximate size of the axes, in points.

    Returns:
        The labels with a point that has no room for its name.
    """
    is_log = axis.get_xscale() == "log"
    x = _scale_values(cloud.x, axis.get_xlim(), size[0], is_log)
    y = _scale_values(cloud.y, axis.get_ylim(), size[1])
    taken = [(left - 3, low - 3, left + 3, low + 3) for left, low in zip(x[0], y[0], strict=True)]
    across = [(left, place - 1, right, place + 1) for left, right, place in zip(x[1], x[2], y[0], strict=True)]
    upright = [(place - 1, low, place + 1, high) for place, low, high in zip(x[0], y[1], y[2], strict=True)]
    corners = np.stack(
        [_scale_values(stairs[0], axis.get_xlim(), size[0], is_log), _scale_values(stairs[1], axis.get_ylim(), size[1])]
    )
    steps = [(*np.minimum(a, b) - 1.5, *np.maximum(a, b) + 1.5) for a, b in itertools.pairwise(corners.T)]
    bars = [box for box in (*across, *upright, *steps) if np.isfinite(box).all()]
    order = np.argsort(~cloud.is_best, kind="stable")
    named = order if len(order) <= _MAX_NAMED else order[: cloud.is_best.sum()]
    unnamed = {cloud.labels[place] for place in order if place not in named}
    for place in named:
        text, is_best = escape_label(cloud.labels[place], _LONGEST), cloud.is_best[place]
        boxes = [_place_name((x[0, place], y[0, place]), len(text), offset) for offset in _OFFSETS]
        free = [box for box in boxes if _is_inside(box, size) and not any(map(_overlaps_with(box), taken))]
        counts = [sum(map(_overlaps_with(box), bars)) for box in free]
        if not free or (min(counts) and not is_best):
            unnamed.add(cloud.labels[place])
            continue
        box = free[counts.index(min(counts))]
        taken.append(box)
        left, up, side = _OFFSETS[boxes.index(box)]
        axis.annotate(
            text,
            (cloud.x[0, place], cloud.y[0, place]),
            (left, up),
            textcoords="offset points",
            ha=side,
            va="center_baseline",
            fontsize=SMALL,
            color=layout.looks[cloud.labels[place]].colour,
            alpha=1.0 if is_best else 0.75,
            bbox=marks.PAPER if min(counts) else None,
        )
    return unnamed


_Box = tuple[float, float, float, float]


def _scale_values(values: np.ndarray, ends: tuple[float, float], length: float, is_log: bool = False) -> np.ndarray:
    """Return the positions of values on an axis of this length."""
    low, high = np.log(ends) if is_log else ends
    with np.errstate(divide="ignore", invalid="ignore"):  # an interval may reach below zero
        return ((np.log(values) if is_log else values) - low) / (high - low) * length


def _place_name(point: tuple[float, float], letters: int, offset: tuple[float, float, str]) -> _Box:
    """Return the left, bottom, right and top edge of a name, in points."""
    x, y = point[0] + offset[0], point[1] + offset[1]
    width = letters * _LETTER
    left = x - {"left": 0.0, "center": width / 2, "right": width}[offset[2]]
    return left, y - _LINE / 2, left + width, y + _LINE / 2


def _overlaps_with(one: _Box) -> Callable[[_Box], bool]:
    return lambda other: one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _is_inside(box: _Box, size: tuple[float, float]) -> bool:
    return box[0] >= 0 and box[2] <= size[0] and box[1] >= 0 and box[3] <= size[1]
