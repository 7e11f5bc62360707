"""Plot accuracy against cost, with the Pareto front: the cells that no other cell beats in both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullFormatter

from gradsweep import run_directory
from gradsweep.text import plural
from reports.plots import layout as layouts
from reports.plots import marks
from reports.plots.layout import GREY, SMALL, WIDE, Layout, escape_label
from reports.plots.lines import average_groups
from reports.plots.picture import Plot
from reports.reading.text import join_words

_MAX_NAMED = 40  # points of a panel with a name; above, only those of the front
_MAX_POINTS = 400  # of a panel; above, of the dominated ones one for each `_TILES`-th of both axes
_TILES = 60
_LIGHT = 0.35  # opacity of a point that another beats
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
    """An x axis: a column of the runs, and whether a higher value is better."""

    name: str
    title: str
    column: str
    label: str
    unit: str
    more_is_better: bool


SPEED = Cost("throughput", "throughput", "samples_per_second", "throughput [samples/s]", "", True)
BYTES = Cost("bytes", "bytes sent", "sent_in_all", "sent by one worker in all [B]", "B", False)


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
    height = 2.7 if layout.has_many else 2.3
    figure, axes = layouts.make_figure(layout, columns, height, "y", is_wide=layout.has_many)
    clouds = [_make_cloud(_select_measured(runs, cost), cost) for _, runs in panels]
    costs = np.concatenate([cloud.x[0] for cloud in clouds])
    for axis, cloud in zip(axes, clouds, strict=True):
        axis.margins(0.16, 0.14)
        if costs.max() > WIDE * costs.min():
            axis.set_xscale("log")
        else:
            axis.locator_params("x", nbins=5)
        axis.xaxis.set_major_formatter(EngFormatter(cost.unit))
        axis.xaxis.set_minor_formatter(NullFormatter())
        _draw(axis, cloud, cost, layout)
        if axis.get_xscale() == "log":
            layouts.label_more_ticks(axis)
    layouts.label_axes(axes, cost.label, "accuracy [%]", "y")
    points = (72 * (figure.get_figwidth() / min(columns, len(axes)) - 0.5), 72 * 0.7 * height)
    for axis, cloud, (_, runs) in zip(axes, clouds, panels, strict=True):
        _name_points(axis, cloud, layout, points)
        is_shown = pd.Series(runs.index.isin(_select_measured(runs, cost).index), runs.index)
        marks.name_absent(axis, runs, marks.choose_words(runs, is_shown), layout)
    explained = [
        Line2D([], [], color=GREY, linewidth=1, label="front: no other is better in both"),
        Line2D([], [], color=GREY, marker="o", linestyle="none", alpha=_LIGHT, label="not on it"),
    ]
    marks.draw_legend(figure, explained, marks.describe_seeds(layout, "bars"), marks.describe_repeats(layout, "point"))
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
    x = np.stack(average_groups([cell[cost.column].to_numpy() for cell in cells]))
    y = np.stack(average_groups([100 * cell["accuracy"].to_numpy() for cell in cells]))
    return _Cloud([cell["label"].iloc[0] for cell in cells], x, y, find_front(x[0], y[0], cost.more_is_better))


def _draw(axis: Axes, cloud: _Cloud, cost: Cost, layout: Layout) -> None:
    best = np.flatnonzero(cloud.is_best)
    best = best[np.argsort(cloud.x[0, best])]
    steps = "steps-pre" if cost.more_is_better else "steps-post"
    axis.plot(cloud.x[0, best], cloud.y[0, best], color=GREY, linewidth=1, drawstyle=steps, zorder=1.5)
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


def _name_points(axis: Axes, cloud: _Cloud, layout: Layout, size: tuple[float, float]) -> None:
    """Write the names next to the marks, the front first, where they hide neither marks nor each other.

    A name that fits nowhere is left out, except on the front.

    Args:
        size: approximate size of the axes, in points.
    """
    ends = np.array([axis.get_xlim(), axis.get_ylim()])
    values = np.array([cloud.x[0], cloud.y[0]])
    if axis.get_xscale() == "log":
        ends[0], values[0] = np.log(ends[0]), np.log(values[0])
    places = ((values.T - ends[:, 0]) / (ends[:, 1] - ends[:, 0])) * size
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in places]
    order = np.argsort(~cloud.is_best, kind="stable")
    for place in order if len(order) <= _MAX_NAMED else order[: cloud.is_best.sum()]:
        text, is_best = escape_label(cloud.labels[place], _LONGEST), cloud.is_best[place]
        boxes = [_place_name(places[place], len(text), offset) for offset in _OFFSETS]
        free = [box for box in boxes if _is_inside(box, size) and not any(map(_overlaps_with(box), taken))]
        if free or is_best:
            box = free[0] if free else boxes[0]
            taken.append(box)
            x, y, side = _OFFSETS[boxes.index(box)]
            axis.annotate(
                text,
                (cloud.x[0, place], cloud.y[0, place]),
                (x, y),
                textcoords="offset points",
                ha=side,
                va="center_baseline",
                fontsize=SMALL,
                color=layout.looks[cloud.labels[place]].colour,
                alpha=1.0 if is_best else 0.75,
            )


_Box = tuple[float, float, float, float]


def _place_name(point: np.ndarray, letters: int, offset: tuple[float, float, str]) -> _Box:
    """Return the left, bottom, right and top edge of a name, in points."""
    x, y = point[0] + offset[0], point[1] + offset[1]
    width = letters * _LETTER
    left = x - {"left": 0.0, "center": width / 2, "right": width}[offset[2]]
    return left, y - _LINE / 2, left + width, y + _LINE / 2


def _overlaps_with(one: _Box) -> Callable[[_Box], bool]:
    return lambda other: one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _is_inside(box: _Box, size: tuple[float, float]) -> bool:
    return box[0] >= 0 and box[2] <= size[0] + 8 and box[1] >= -2 and box[3] <= size[1] + 6
