"""What the plots have in common: which runs share a panel, and who is named where.

A panel compares compressors and nothing else: there is one for each number of workers and each
setting of what else was swept. More compressors than can be told apart have small axes of their
own in it, with all others as a backdrop.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reports import style
from reports.collect import RUN_COLUMNS
from reports.grid import BASELINE, Grid
from reports.table import MISSING, NOT_MEASURED
from reports.text import counted, listed, order, setting
from sweep import run as rundir

GREY = "#666666"
UNFAIR = {"oversubscribed": "more workers than cores", "shared_cores": "cores shared with other runs"}
"""Why times cannot be compared, by the column of `Report.runs` that says so."""
_FEW = 8  # labels whose lines can be told apart
_MAX_PANELS = 24
_MAX_SMALL = 160  # axes of small multiples
_ACROSS = 4  # of them side by side
_NAME = 20  # characters of a bold name that fit above one
_SMALL = 7.0  # points
_REPEATS = ("seed", "run")  # runs that differ in nothing else share a panel
_WIDTH, _LEGEND = 7.2, 0.4  # inches
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}  # behind a word on a backdrop
_AXES = 0.72  # of a panel's height, the rest is for its title and numbers
_LINE = 9.5  # points from one line of text to the next
_LEGEND_CHARACTERS = 105  # that fit into one line


@dataclasses.dataclass(frozen=True)
class Layout:
    """Who shares a panel.

    Attributes:
        panels: title and runs of each; with the column `repeat`, which tells apart the runs that have
            one label and one number of workers.
        columns: how many fit side by side.
        repeats: the keys that differ between the lines of one colour in a panel.
        looks: of each label, in the order of the tables.
        is_titled: whether the axes have their only label as title, and it need not be said again.
    """

    panels: Sequence[tuple[str, pd.DataFrame]]
    columns: int
    repeats: Sequence[str]
    looks: Mapping[str, style.Look]
    is_titled: bool = False

    def all_done(self) -> pd.DataFrame:
        runs = pd.concat([runs for _, runs in self.panels])
        return runs[runs["status"] == rundir.DONE]

    def unfair(self) -> list[str]:
        """The columns in `UNFAIR` that are true of some run."""
        runs = self.all_done()
        return [column for column in UNFAIR if runs[column].any()]

    @property
    def has_many(self) -> bool:
        """Whether there are too many labels for one pair of axes."""
        return len(self.looks) > _FEW

    def only(self, label: str) -> Layout:
        """What small axes show in front of the backdrop."""
        return dataclasses.replace(self, looks={label: self.looks[label]}, is_titled=True)


def lay_out(grid: Grid, runs: pd.DataFrame, by: Sequence[str]) -> Layout:
    """One panel for each setting of the swept keys and each value of `by`, while one can look at so many."""
    apart = [key for key in grid.keys if key not in _REPEATS]
    looks = style.looks(grid.labels)
    most = _MAX_PANELS if len(looks) <= _FEW else _MAX_SMALL // len(looks)
    if apart and len(runs.drop_duplicates([*apart, *by])) > most:
        apart = []
    repeats = [key for key in grid.run_keys if key not in apart]
    runs = runs.assign(repeat=[" ".join(map(setting, values)) for _, *values in runs[repeats].itertuples()])
    keys = [*apart, *by]
    groups = list(runs.groupby(keys, dropna=False, sort=False)) if keys else []
    groups.sort(key=lambda group: [order(value) for value in group[0]])
    columns_shown = [column for column in runs.columns if column in (*RUN_COLUMNS, "label", "workers", "repeat")]
    panels = [(_title(keys, values), part[columns_shown]) for values, part in groups or [((), runs)]]
    rows = math.ceil(len(panels) / 4)
    columns = len(grid.workers) if apart and by and len(grid.workers) <= 4 else math.ceil(len(panels) / rows)
    return Layout(panels, columns, repeats, looks)


def figure_of(layout: Layout, columns: int, height: float, share: str = "") -> tuple[Figure, list[Axes]]:
    """A figure and its axes, one for each panel, with its title; `columns` a row, each `height` inches high.

    `share` is `x`, `y` or `all` where panels have an axis in common.
    """
    count = len(layout.panels)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(_WIDTH, _LEGEND + height * rows))
    axes = list(
        figure.subplots(rows, columns, sharex=share in ("x", "all"), sharey=share in ("y", "all"), squeeze=False).flat
    )
    for unused in axes[count:]:
        unused.remove()
    for axis, (title, _) in zip(axes, layout.panels, strict=False):
        axis.set_title(title if columns > 1 else title.replace("\n", ", "))
    return figure, axes[:count]


def small_multiples(layout: Layout, height: float, x: str, y: str) -> tuple[Figure, list[dict[str, Axes]]]:
    """A figure and, for each panel, the axes of each label, `height` inches high.

    Those of a panel have the same limits because they have the same backdrop.
    """
    rows = math.ceil(len(layout.looks) / _ACROSS)
    names = {label: textwrap.wrap(label, _NAME) for label in layout.looks}
    height += 0.13 * (max(map(len, names.values())) - 1)
    figure = Figure(figsize=(_WIDTH, _LEGEND + len(layout.panels) * (height * rows + 0.35)))
    blocks: list[dict[str, Axes]] = []
    for part, (title, _) in zip(
        figure.subfigures(len(layout.panels), 1, squeeze=False).flat, layout.panels, strict=True
    ):
        axes = list(part.subplots(rows, _ACROSS, squeeze=False).flat)
        for unused in axes[len(names) :]:
            unused.remove()
        block = dict(zip(names, axes, strict=False))
        for label, axis in block.items():
            axis.set_title("\n".join(map(plain, names[label])), fontsize=_SMALL)
        label_axes(list(block.values()), "", "", "all")
        part.suptitle(title.replace("\n", ", "), x=0.01, ha="left")
        part.supxlabel(x)
        part.supylabel(y)
        blocks.append(block)
    return figure, blocks


def same_limits(axes: Sequence[Axes], share: str) -> None:
    """Show the same part of the axis that panels have in common, `share` as in `figure_of`."""
    if share in ("x", "all"):
        lefts, rights = zip(*(axis.get_xlim() for axis in axes), strict=True)
        for axis in axes:
            axis.set_xlim(min(lefts), max(rights))
    if share in ("y", "all"):
        bottoms, tops = zip(*(axis.get_ylim() for axis in axes), strict=True)
        for axis in axes:
            axis.set_ylim(min(bottoms), max(tops))


def backdrop(axis: Axes, lines: Mapping[str, Sequence[np.ndarray]]) -> None:
    """The lines of all labels in grey, and those of the baseline in black, for one label's line to stand out from."""
    everyone = [line for label, members in lines.items() for line in members if label != BASELINE]
    axis.add_collection(LineCollection(everyone, colors=style.BACKDROP, linewidths=0.6, zorder=1.1))
    axis.add_collection(LineCollection(lines.get(BASELINE, []), colors=style.BLACK, linewidths=0.8, zorder=1.2))


def title_right(axis: Axes, text: str) -> None:
    """Beside the name of small axes."""
    axis.set_title(text, loc="right", fontsize=_SMALL, fontweight="normal")


def backdrop_marks(layout: Layout) -> list[Line2D]:
    """What a legend says about the backdrop."""
    marks = [Line2D([], [], color=style.BLACK, linewidth=0.8, label=BASELINE)] if BASELINE in layout.looks else []
    return [*marks, Line2D([], [], color=style.BACKDROP, label="all others")]


def label_axes(axes: Sequence[Axes], x: str, y: str, share: str) -> None:
    """Name the axes; where they are shared, only where nothing is below or left of them."""
    for place, axis in enumerate(axes):
        subplot = axis.get_subplotspec()
        columns = subplot.get_gridspec().ncols if subplot else 1
        bottom, left = place + columns >= len(axes), place % columns == 0
        axis.tick_params(labelbottom=bottom or share == "y", labelleft=left or share == "x")
        axis.set(xlabel=x if bottom else "", ylabel=y if left else "")


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float, str]], layout: Layout) -> None:
    """Write right of the end (x, y) of each label's line its text, moved up or down where texts would overlap.

    To be called when nothing will change the limits of the axis any more.
    """
    bottom, top = axis.get_ylim()
    subplot, figure = axis.get_subplotspec(), axis.get_figure()
    rows = subplot.get_gridspec().nrows if subplot else 1
    inches = (figure.get_figheight() - _LEGEND) / rows if isinstance(figure, Figure) else 1.0
    points = 72 * inches * _AXES / (top - bottom)
    ranked = sorted(ends.items(), key=lambda end: end[1][1])
    places = _spread([y * points for _, (_, y, _) in ranked], bottom * points)
    for (label, (x, y, text)), place in zip(ranked, places, strict=True):
        offset = (6, place - y * points)
        colour = layout.looks[label].colour
        axis.annotate(text, (x, y), offset, textcoords="offset points", va="center_baseline", color=colour, fontsize=8)


def _spread(heights: Sequence[float], bottom: float, gap: float = _LINE) -> list[float]:
    """Ascending heights, moved as little as possible until neighbours are `gap` apart and none is below `bottom`.

    Isotonic regression by pooling adjacent violators: those that are too close share their mean.
    """
    pools: list[tuple[float, int]] = []
    for rank, height in enumerate(heights):
        total, count = height - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    return [max(mean, bottom) + rank * gap for rank, mean in enumerate(means)]


def words_for(runs: pd.DataFrame, is_shown: pd.Series) -> pd.Series:
    """Why a run is not shown, in a word; empty for those that are."""
    return runs["status"].replace(rundir.DONE, NOT_MEASURED).mask(is_shown, "")


def absent(label: str, runs: pd.DataFrame, words: pd.Series) -> list[str]:
    """Each word once for the runs of this label: `failed`, `diverged (2)`; `missing` where there are none."""
    here = words[runs["label"] == label]
    counts = collections.Counter(here[here != ""]) if len(here) else {MISSING: 1}
    return [f"{word} ({count})" if count > 1 else word for word, count in counts.items()]


def name_absent(axis: Axes, runs: pd.DataFrame, words: pd.Series, layout: Layout, x: float | None = None) -> None:
    """Write label and word of what is not drawn at the foot of the panel, at `x` or at its right."""
    place = ((0.98, 0.02), "axes fraction", "right") if x is None else ((x, 0.02), ("data", "axes fraction"), "center")
    lines = [(label, word) for label in layout.looks for word in absent(label, runs, words)]
    for line, (label, word) in enumerate(reversed(lines)):
        axis.annotate(
            word if layout.is_titled else f"{plain(label, 24)}: {word}",
            place[0],
            (0, line * (_LINE - 1)),
            xycoords=place[1],
            textcoords="offset points",
            ha=place[2],
            fontsize=7,
            color=layout.looks[label].colour,
            bbox=_PAPER if layout.is_titled else None,
        )


def legend(figure: Figure, marks: Sequence[Line2D | Patch], repeats: Sequence[str] = ()) -> None:
    """Above all panels, in as many lines as it needs; `repeats` are explained."""
    title = f"one line for each {listed([plain(key) for key in repeats])}" if repeats else None
    if marks or title:
        handle = 1.0 if all(isinstance(mark, Patch) for mark in marks) else 1.8  # in heights of a letter
        lengths = [len(str(mark.get_label())) + 4 + 2 * handle for mark in marks] or [1]
        fits = sum(lengths) <= _LEGEND_CHARACTERS
        columns = len(lengths) if fits else max(1, int(_LEGEND_CHARACTERS / max(lengths)))
        box = figure.legend(
            handles=marks,
            loc="outside upper left",
            ncols=columns,
            handlelength=handle,
            title=title,
            title_fontsize=8,
        )
        box.set_alignment("left")


def plain(text: str, limit: int = 40) -> str:
    """A name as matplotlib shall write it: `$` begins no formula, and no name fills the figure."""
    return (text if len(text) <= limit else f"{text[: limit - 1]}…").replace("$", r"\$")


def _title(keys: Sequence[str], values: Sequence[Any]) -> str:
    texts = dict(zip(keys, map(setting, values), strict=True))
    workers = [counted(int(float(texts.pop("workers"))), "worker")] if "workers" in texts else []
    settings = ", ".join(f"{key}={text or 'null'}" for key, text in texts.items())
    return "\n".join(filter(None, [plain(settings), *workers]))
