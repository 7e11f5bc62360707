"""Lay out figures: choose the runs of each panel and of each line, and the size of the figure.

A panel compares labels: compressors, with algorithms if these were swept (`Grid.by_method`). There is a panel for each
number of workers and each setting of the other swept keys. If there are more labels than a reader can tell apart, the
panel consists of small axes, one for each label, with the lines of all other labels as a backdrop.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from gradsweep.text import plural
from reports.analysis.grid import Grid, find_centralised, is_method_key
from reports.analysis.measures import THROUGHPUT, select_once
from reports.analysis.table import UNFAIR, is_true
from reports.plots import style
from reports.plots.style import BASELINES
from reports.reading.columns import RUN_COLUMNS, list_metrics
from reports.reading.text import format_setting, make_sort_key

GREY = "#666666"
COLUMN, TEXT = 3.5, 7.2  # inches: widths of one column of a paper, and of both
LEGEND = 0.4  # inches above all panels
SMALL = 7.0  # points
WIDE = 20  # largest over smallest value above which an axis is logarithmic
_FEW = 8  # labels whose lines can be told apart
_MAX_PANELS = 12
_MAX_SMALL = 24  # axes of small multiples, which fill a page
_ACROSS = 4  # of them side by side
_SMALL_HEIGHT = 0.72  # inches: height of such axes; above all of a panel; below; left of all; between two
_HEAD, _FOOT, _LEFT, _BETWEEN = 0.16, 0.52, 0.62, 0.14
_TICK = 0.42  # inches: `100 MB` and a space below axes
_NAME = 20  # characters of a bold name that fit above one
_NARROW = 12  # characters of a label that fit into one column of a paper, beside its axes
PLAIN = FuncFormatter(lambda value, _: f"{value:,.12g}")
"""Plain numbers at ticks: typesetting formulas takes most of the time of a picture."""
_REPEATS = ("run",)  # runs that differ in nothing else share a panel


@dataclasses.dataclass(frozen=True)
class Layout:
    """The panels of a figure, and the runs in each.

    Attributes:
        panels: title and runs of each panel. The column `repeat` of the runs tells the lines of one label apart. Runs
            with the same `cell` differ only in their seed: a line is their mean.
        columns: the number of panels side by side.
        repeats: the keys that differ between the lines of one colour in a panel.
        looks: the look of each label, in the order of the tables.
        is_titled: whether the title of the axes already names their only label.
        omitted: the note of a legend on omitted panels.
    """

    panels: Sequence[tuple[str, pd.DataFrame]]
    columns: int
    repeats: Sequence[str]
    looks: Mapping[str, style.Look]
    is_titled: bool = False
    omitted: str = ""

    def get_measured_runs(self, column: str = "status") -> pd.DataFrame:
        """Return the runs with a figure of their own in a column (`select_once`), each once; default: all that are
        done.
        """
        runs = pd.concat([runs for _, runs in self.panels]).drop_duplicates(["sweep", "run"])
        return runs[select_once(runs, column)]

    def find_unfair(self) -> list[str]:
        """Return the flags in `UNFAIR`, such as few timed steps, that are true for some run's throughput."""
        runs = self.get_measured_runs(THROUGHPUT.column)
        return [column for column in UNFAIR if runs[column].any()]

    def explain_unfair(self, column: str) -> str:
        """Return the words of `UNFAIR` for a column; for `few_steps`, the numbers of steps in place of them."""
        if column != "few_steps":
            return UNFAIR[column]
        runs = self.get_measured_runs(THROUGHPUT.column)
        few = runs[is_true(runs[column])]
        is_timed = is_true(few["timed_steps"] > 0)
        said = [(few.loc[is_timed, "timed_steps"], "timed steps"), (few.loc[~is_timed, "steps_done"], "warm-up steps")]
        return " or ".join(f"{_format_range(steps)} {words}" for steps, words in said if len(steps))

    def describe_means(self, column: str = "status") -> str:
        """Return `mean of 5 seeds`, `mean of 2 to 5 seeds`; empty if no mark is a mean of several runs' figures."""
        sizes = self.get_measured_runs(column).groupby("cell").size()
        least, most = sizes.min(), sizes.max()
        return f"mean of {most if least == most else f'{least} to {most}'} seeds" if most > 1 else ""

    @property
    def has_many(self) -> bool:
        """Whether there are too many labels for common axes."""
        return len(self.looks) > _FEW

    def abridge(self) -> Layout:
        """Return the layout with as many panels as fit on a page, including the first and the last."""
        most = max(2, _MAX_SMALL // len(self.looks)) if self.has_many else _MAX_PANELS
        count = len(self.panels)
        if count <= most:
            return self
        places = sorted({round(rank * (count - 1) / (most - 1)) for rank in range(most)})
        panels = [self.panels[place] for place in places]
        return dataclasses.replace(self, panels=panels, omitted=f"{most} of {count} panels, all are in report.html")

    def drop_central(self) -> Layout:
        """Return the layout without the runs that have no topology, if other runs have one."""
        panels = [(title, runs[~runs["central"]]) for title, runs in self.panels]
        panels = [(title, runs) for title, runs in panels if len(runs)]
        labels = {label for _, runs in panels for label in runs["label"]}
        looks = {label: look for label, look in self.looks.items() if label in labels}
        return dataclasses.replace(self, panels=panels, looks=looks)

    def select_label(self, label: str) -> Layout:
        """Return the layout for those small axes of a panel that highlight this label."""
        return dataclasses.replace(self, looks={label: self.looks[label]}, is_titled=True)


def _format_range(counts: pd.Series) -> str:
    """Return counts as a text: `29` if all are equal, else `3 to 29`."""
    least, most = counts.min(), counts.max()
    return f"{most}" if least == most else f"{least} to {most}"


def lay_out_panels(grid: Grid, runs: pd.DataFrame, by: Sequence[str]) -> Layout:
    """Return a panel for each setting of the swept keys and each value of the columns `by`, up to a readable number."""
    apart = [key for key in grid.keys if key not in _REPEATS]
    looks = style.choose_looks(grid.labels)
    most = _MAX_PANELS if len(looks) <= _FEW else _MAX_SMALL // len(looks)
    while apart and len(runs.drop_duplicates([*apart, *by])) > most:
        apart = apart[:-1]
    repeats = [key for key in grid.keys if key not in apart]
    runs = runs.assign(repeat=[" ".join(map(format_setting, values)) for _, *values in runs[repeats].itertuples()])
    keys = [*apart, *by]
    runs = runs.assign(central=find_centralised(runs))
    groups = _add_central(list(runs.groupby(keys, dropna=False, sort=False)) if keys else [], keys)
    groups.sort(key=lambda group: [make_sort_key(value) for value in group[0]])
    others = ("label", "workers", "cell", "repeat", "central")
    shown = [column for column in runs.columns if column in (*RUN_COLUMNS, *others, *list_metrics(runs))]
    panels = [(_format_title(keys, values), part[shown]) for values, part in groups or [((), runs)]]
    rows = math.ceil(len(panels) / 4)
    columns = len(grid.workers) if apart and by and 1 < len(grid.workers) <= 4 else math.ceil(len(panels) / rows)
    return Layout(panels, columns, repeats, looks)


def _add_central(groups: Sequence[tuple[Any, pd.DataFrame]], keys: Sequence[str]) -> list[tuple[Any, pd.DataFrame]]:
    """Return the groups, with the runs without a topology added to each topology's group for comparison."""

    def rest(values: Sequence[Any]) -> tuple[str, ...]:
        return tuple(format_setting(value) for key, value in zip(keys, values, strict=True) if not is_method_key(key))

    central: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    others = []
    for values, part in groups:
        if part["central"].all():
            central.setdefault(rest(values), []).append(part)
        else:
            others.append((values, part))
    known = {rest(values) for values, _ in others}
    alone = [(values, part) for values, part in groups if part["central"].all() and rest(values) not in known]
    return alone + [(values, pd.concat([*central.get(rest(values), ()), part])) for values, part in others]


def make_figure(
    layout: Layout, columns: int, height: float, share: str = "", is_wide: bool = False
) -> tuple[Figure, list[Axes]]:
    """Make a figure with titled axes for each panel; `columns` panels in a row, each `height` inches high.

    The figure has the width of one column of a paper if it has a single panel in a row whose labels fit, unless
    `is_wide`. `share` is `x`, `y` or `all` if panels have an axis in common.
    """
    count = len(layout.panels)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    is_narrow = not is_wide and columns == 1 and max(map(len, layout.looks)) <= _NARROW
    figure = Figure(figsize=(COLUMN if is_narrow else TEXT, LEGEND + height * rows))
    axes = list(
        figure.subplots(rows, columns, sharex=share in ("x", "all"), sharey=share in ("y", "all"), squeeze=False).flat
    )
    for unused in axes[count:]:
        unused.remove()
    for axis, (title, _) in zip(axes, layout.panels, strict=False):
        axis.set_title(title if columns > 1 else title.replace("\n", ", "))
    return figure, axes[:count]


def make_small_multiples(layout: Layout, x: str, y: str) -> tuple[Figure, list[dict[str, Axes]]]:
    """Make a figure, and for each panel the small axes of each label.

    The axes of a panel have the same limits because they have the same backdrop. All axes have the same size, so they
    are positioned here: matplotlib's layout takes longer than drawing them.
    """
    names = {label: textwrap.wrap(label, _NAME) for label in layout.looks}
    rows = math.ceil(len(names) / _ACROSS)
    step = _SMALL_HEIGHT + 0.12 + 0.11 * max(map(len, names.values()))
    block_height = _HEAD + rows * step + _FOOT
    height = LEGEND + len(layout.panels) * block_height
    step_x = (TEXT - _LEFT + _BETWEEN - 0.12) / _ACROSS
    figure = Figure(figsize=(TEXT, height), layout="none")  # type: ignore[arg-type]
    blocks: list[dict[str, Axes]] = []
    for rank, (title, _) in enumerate(layout.panels):
        top = height - LEGEND - rank * block_height
        bold: dict[str, Any] = {"fontsize": 8.5, "fontweight": "bold", "va": "top"}
        figure.text(0.05 / TEXT, top / height, title.replace("\n", ", "), **bold)
        figure.text(0.5, (top - block_height + 0.14) / height, x, ha="center", fontsize=8.5)
        middle = (top - _HEAD - rows * step / 2) / height
        figure.text(0.02, middle, y, va="center", rotation="vertical", fontsize=8.5)
        block: dict[str, Axes] = {}
        for place, label in enumerate(names):
            left, bottom = _LEFT + place % _ACROSS * step_x, top - _HEAD - (place // _ACROSS + 1) * step
            size = ((step_x - _BETWEEN) / TEXT, _SMALL_HEIGHT / height)
            axis = block[label] = figure.add_axes((left / TEXT, bottom / height, *size))
            axis.set_title("\n".join(map(escape_label, names[label])), fontsize=SMALL, pad=3)
            axis.tick_params(labelsize=SMALL)
            axis.locator_params(nbins=4)
            # Ticks take most of the time of small axes; `draw_grid` draws the grid of inner axes.
            axis.xaxis.set_visible(place + _ACROSS >= len(names))
            axis.yaxis.set_visible(place % _ACROSS == 0)
        blocks.append(block)
    return figure, blocks


def draw_grid(blocks: Sequence[Mapping[str, Axes]]) -> None:
    """Continue the horizontal grid lines of the leftmost small axes in the other axes, once limits are final."""
    for block in blocks:
        left, *others = block.values()
        low, high = sorted(left.get_ylim())
        ticks = [tick for tick in left.yaxis.get_majorticklocs() if low <= tick <= high]
        for axis in others:
            if not axis.yaxis.get_visible():
                lines = [((0, tick), (1, tick)) for tick in ticks]
                style_of = {"colors": rcParams["grid.color"], "linewidths": rcParams["grid.linewidth"], "zorder": 0.5}
                axis.add_collection(
                    LineCollection(lines, transform=axis.get_yaxis_transform(), **style_of), autolim=False
                )


def label_axes(axes: Sequence[Axes], x: str, y: str, share: str) -> None:
    """Label the axes; axes that panels share are labelled only at the bottom and at the left."""
    for place, axis in enumerate(axes):
        subplot = axis.get_subplotspec()
        columns = subplot.get_gridspec().ncols if subplot else 1
        bottom, left = place + columns >= len(axes), place % columns == 0
        axis.tick_params(labelbottom=bottom or share == "y", labelleft=left or share == "x")
        axis.set(xlabel=x if bottom else "", ylabel=y if left else "")


def label_more_ticks(axis: Axes) -> None:
    """Label more ticks on a logarithmic x axis that shows few powers of ten, so that a reader sees its scale.

    They are at 1, 2 and 5 of each decade, or at 1 and 3 if the labels need more space.
    """
    low, high = axis.get_xlim()
    if not 0 < low < high < 100 * low:
        return
    figure = axis.get_figure()
    width = figure.get_figwidth() if isinstance(figure, Figure) else COLUMN
    decade = axis.get_position().width * width / math.log10(high / low)
    for subs in ((1, 2, 5), (1, 3)):
        nearest = min(math.log10(after / before) for before, after in itertools.pairwise((*subs, 10)))
        if nearest * decade >= _TICK:
            axis.xaxis.set_major_locator(LogLocator(subs=subs))
            return


def share_limits(axes: Sequence[Axes], share: str) -> None:
    """Give panels the same limits on their shared axes, `share` as in `make_figure`."""
    if share in ("x", "all"):
        lefts, rights = zip(*(axis.get_xlim() for axis in axes), strict=True)
        for axis in axes:
            axis.set_xlim(min(lefts), max(rights))
    if share in ("y", "all"):
        bottoms, tops = zip(*(axis.get_ylim() for axis in axes), strict=True)
        for axis in axes:
            axis.set_ylim(min(bottoms), max(tops))


def wrap_text(text: str, width: int) -> list[str]:
    """Return the lines of a text; no line begins with a percent sign."""
    return [line.replace("\xa0", " ") for line in textwrap.wrap(text.replace(" %", "\xa0%"), width)]


def escape_label(text: str, limit: int = 40) -> str:
    """Return a name for matplotlib in which `$` begins no formula, shortened if it is too long for the figure."""
    return (text if len(text) <= limit else f"{text[: limit - 1]}…").replace("$", r"\$")


def find_baseline(labels: Sequence[str]) -> str:
    """Return the label that others are compared with: the baseline's, or else the first."""
    return next((label for label in labels if label in BASELINES), labels[0])


def _format_title(keys: Sequence[str], values: Sequence[Any]) -> str:
    texts = dict(zip(keys, map(format_setting, values), strict=True))
    workers = [plural(int(float(texts.pop("workers"))), "worker")] if "workers" in texts else []
    settings = ", ".join(f"{key}={text or 'null'}" for key, text in texts.items())
    return "\n".join(filter(None, [escape_label(settings), *workers]))
