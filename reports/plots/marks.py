"""Write into panels: names of lines, words for runs without a figure, legends, backgrounds."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gradsweep import run_directory
from gradsweep.text import plural
from reports.analysis.measures import THROUGHPUT, find_own_intervals
from reports.analysis.table import NO_RUN, NOT_MEASURED
from reports.plots import style
from reports.plots.layout import LEGEND, SMALL, TEXT, Layout, escape_label, wrap_text
from reports.plots.style import BASELINES
from reports.reading.text import format_number, join_words

PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}  # behind a word on a backdrop
_AXES = 0.72  # of a panel's height, the rest is for its title and numbers
_LINE = 9.5  # points from one line of text to the next
_LEGEND_LINE = 0.18  # inches likewise, above the panels
_LEGEND_CHARACTERS = 105  # that fit into one line of a wide figure
_MAX_NAMED = 24  # numbers in one alternative text


def draw_backdrop(axis: Axes, lines: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draw the lines of all labels in grey and those of the baseline in black, behind the line of one label."""
    everyone = [line for label, members in lines.items() for line in members if label not in BASELINES]
    axis.add_collection(LineCollection(everyone, colors=style.BACKDROP, linewidths=0.6, zorder=1.1))
    baseline = [line for label in BASELINES for line in lines.get(label, ())]
    axis.add_collection(LineCollection(baseline, colors=style.BLACK, linewidths=0.8, zorder=1.2))


def make_backdrop_marks(layout: Layout) -> list[Line2D]:
    """Return the marks that explain the background lines in a legend."""
    named = [label for label in layout.looks if label in BASELINES]
    marks = [Line2D([], [], color=style.BLACK, linewidth=0.8, label=label) for label in named]
    return [*marks, Line2D([], [], color=style.BACKDROP, label="all others")]


def make_label_marks(looks: Mapping[str, style.Look], line: Literal["-", "none"] = "-") -> list[Line2D]:
    """Return the marks that explain the labels with these looks in a legend; `line` is the style of their lines."""
    return [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=line, label=escape_label(label))
        for label, look in looks.items()
    ]


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float, str]], layout: Layout) -> None:
    """Write each label's text to the right of its line's end (x, y), moved up or down if texts would overlap.

    The limits of the axis must be final.
    """
    bottom, top = axis.get_ylim()
    subplot, figure = axis.get_subplotspec(), axis.get_figure()
    rows = subplot.get_gridspec().nrows if subplot else 1
    inches = (figure.get_figheight() - LEGEND) / rows if isinstance(figure, Figure) else 1.0
    points = 72 * inches * _AXES
    if axis.get_yscale() == "log":
        heights = {label: np.log(y / bottom) / np.log(top / bottom) * points for label, (_, y, _) in ends.items()}
    else:
        heights = {label: (y - bottom) / (top - bottom) * points for label, (_, y, _) in ends.items()}
    ranked = sorted(heights, key=lambda label: heights[label])
    places = _spread_heights([heights[label] for label in ranked], _LINE / 2, points)
    for label, place in zip(ranked, places, strict=True):
        x, y, text = ends[label]
        offset = (6, place - heights[label])
        colour = layout.looks[label].colour
        axis.annotate(text, (x, y), offset, textcoords="offset points", va="center_baseline", color=colour, fontsize=8)


def _spread_heights(heights: Sequence[float], bottom: float, top: float, gap: float = _LINE) -> list[float]:
    """Return ascending heights, moved as little as possible until neighbours are `gap` apart, in [`bottom`, `top`].

    Isotonic regression by pooling adjacent violators: those that are too close share their mean. If there is no room
    for all, they continue below `bottom`, away from the title.
    """
    pools: list[tuple[float, int]] = []
    for rank, height in enumerate(heights):
        total, count = height - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    highest = top - (len(means) - 1) * gap
    return [min(max(mean, bottom), highest) + rank * gap for rank, mean in enumerate(means)]


def choose_words(runs: pd.DataFrame, is_shown: pd.Series) -> pd.Series:
    """Return for each run the word that says why it is not shown; an empty text if it is shown."""
    return runs["status"].replace(run_directory.DONE, NOT_MEASURED).mask(is_shown, "")


def list_absent(label: str, runs: pd.DataFrame, words: pd.Series) -> list[str]:
    """Return the words for the runs of this label, each once with its count: `failed`, `diverged (2)`; without runs
    `no run`.
    """
    here = words[runs["label"] == label]
    counts = collections.Counter(here[here != ""]) if len(here) else {NO_RUN: 1}
    return [f"{word} ({count})" if count > 1 else word for word, count in counts.items()]


def name_absent(axis: Axes, runs: pd.DataFrame, words: pd.Series, layout: Layout, x: float | None = None) -> None:
    """Write label and word of runs that have no line or bar at the foot of the panel, at `x` or at the right."""
    place = ((0.98, 0.02), "axes fraction", "right") if x is None else ((x, 0.02), ("data", "axes fraction"), "center")
    lines = [(label, word) for label in layout.looks for word in list_absent(label, runs, words)]
    for line, (label, word) in enumerate(reversed(lines)):
        axis.annotate(
            word if layout.is_titled else f"{escape_label(label, 24)}: {word}",
            place[0],
            (0, line * (_LINE - 1)),
            xycoords=place[1],
            textcoords="offset points",
            ha=place[2],
            fontsize=SMALL,
            color=layout.looks[label].colour,
            bbox=PAPER if layout.is_titled else None,
        )


def draw_legend(figure: Figure, marks: Sequence[Line2D | Patch], *notes: str) -> None:
    """Draw a legend above all panels, for which the figure grows; notes that are not empty come first."""
    title = "; ".join(filter(None, notes))
    if marks or title:
        handle = 1.0 if all(isinstance(mark, Patch) for mark in marks) else 1.8  # in heights of a letter
        beside = 4 + 2 * handle  # a label
        room = _LEGEND_CHARACTERS * figure.get_figwidth() / TEXT
        for mark in marks:
            mark.set_label("\n".join(wrap_text(str(mark.get_label()), int(room - beside))))
        title = "\n".join(wrap_text(title, int(room)))
        labels = [str(mark.get_label()) for mark in marks]
        lengths = [max(map(len, label.split("\n"))) + beside for label in labels] or [1]
        columns = len(lengths) if sum(lengths) <= room else max(1, int(room / max(lengths)))
        wrapped = sum(label.count("\n") for label in labels)
        lines = (-(-len(marks) // columns)) + wrapped + len(title.split("\n")) * bool(title)
        _grow(figure, _LEGEND_LINE * max(lines - 1, 0))
        box = figure.legend(
            handles=marks,
            loc="outside upper left",
            ncols=columns,
            handlelength=handle,
            title=title or None,
            title_fontsize=8,
        )
        box.set_alignment("left")


def _grow(figure: Figure, inches: float) -> None:
    """Make a figure higher at the top; axes and texts keep their positions."""
    before = figure.get_figheight()
    figure.set_figheight(before + inches)
    if figure.get_layout_engine() is None:
        shrunk = before / (before + inches)
        for axis in figure.axes:
            x, y, width, height = axis.get_position().bounds
            axis.set_position((x, y * shrunk, width, height * shrunk))
        for text in figure.texts:
            text.set_y(text.get_position()[1] * shrunk)


def describe_seeds(layout: Layout, interval: str, column: str = "status", is_log: bool = False) -> str:
    """Return the legend's note on means: `mean of 5 seeds, band: 95 % interval`; empty if no line or bar is a mean."""
    means = layout.describe_means(column)
    how = " (computed on the log scale)" if is_log else ""
    return f"{means}, {interval}: 95 % interval{how}" if means else ""


def describe_own(layout: Layout, interval: str) -> str:
    """Return the legend's note on intervals of throughputs that a single run has measured; empty if there are none."""
    runs = layout.get_measured_runs(THROUGHPUT.column)
    known = runs[np.isfinite(find_own_intervals(runs)).all(axis=1)]
    kinds = dict.fromkeys(known["raced_by"].notna().map({True: "the race's rounds", False: "a single run's steps"}))
    return "; ".join(f"{interval}: 95 % interval over {kind}" for kind in kinds)


def describe_repeats(layout: Layout, mark: str = "line") -> str:
    """Return the legend's note for labels with several lines: `one line for each optimizer.lr`."""
    return f"one {mark} for each {join_words([escape_label(key) for key in layout.repeats])}" if layout.repeats else ""


def write_alt_text(what: str, layout: Layout, column: str, unit: str, scale: float = 1, offset: float = 0) -> str:
    """Describe a plot in words: the mean of each cell, or the range of many cells."""
    runs = layout.get_measured_runs(column)
    cells = runs.groupby("cell", sort=False).agg(
        label=("label", "first"), workers=("workers", "first"), value=(column, "mean"), count=(column, "size")
    )
    values = list(cells["value"] * scale + offset)
    if not values:
        return f"{what}: no run has finished."
    means = layout.describe_means(column)
    of = f", {means}" if means else ""
    if len(values) > _MAX_NAMED:
        ends = f"from {format_number(min(values))} to {format_number(max(values))} {unit}"
        return f"{what}{of}: {plural(len(runs), 'run')} {ends}."
    names = [
        f"{label}, {plural(int(count), 'worker')}"
        for label, count in zip(cells["label"], cells["workers"], strict=True)
    ]
    told = "; ".join(f"{name}: {format_number(value)}" for name, value in zip(names, values, strict=True))
    return f"{what}{of}, in {unit}: {told}."
