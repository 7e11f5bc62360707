"""Draw plots of horizontal bars, with a row for each label (a compressor)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from gradsweep import csv_columns
from gradsweep.text import plural
from reports.analysis.measures import STEP, THROUGHPUT, find_known, find_own_intervals, select_once
from reports.analysis.table import MARKS, NOT_RACED
from reports.plots import layout as layouts
from reports.plots import marks, style
from reports.plots.layout import GREY, Layout, escape_label
from reports.plots.lines import average_groups
from reports.plots.picture import Plot
from reports.plots.style import BASELINES
from reports.reading.text import format_number

_THICKNESS = 0.72  # of a bar, in rows
_FAR = 5  # highest over lowest ratio above which their axis is logarithmic
_ROW, _FRAME = 0.2, 0.42  # inches
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # of a value behind which the baseline's line passes
_CHARACTERS, _LINE = 13.5, 0.16  # of a label that fit into an inch; inches of a further line of it


def draw_ranking(layout: Layout) -> Figure:
    """Draw the throughput with one number of workers: a bar for each label, sorted if there are many."""
    figure, axes = layouts.make_figure(layout, 1, _FRAME + _ROW * len(layout.looks), share="x")
    for axis, (_, runs) in zip(axes, layout.panels, strict=True):
        shown = select_once(runs, THROUGHPUT.column)
        speeds = runs[shown].groupby("label")["iterations_per_second"]
        means, longest = speeds.mean().sort_values(ascending=False), speeds.max()
        for place, label in enumerate(_name_rows(axis, layout, means)):
            mean, end = means.get(label, 0.0), longest.get(label, 0.0)
            axis.barh(place, mean, _THICKNESS, color=style.BLACK if label in BASELINES else style.BAR)
            here = runs.loc[shown & (runs["label"] == label), "iterations_per_second"]
            own = find_own_intervals(runs.loc[here.index])
            if layout.repeats:
                axis.plot(here, [place] * len(here), "|", color=GREY, zorder=2.6)
            elif len(here) > 1 or np.isfinite(own).any():
                _, low, high = average_groups([here.to_numpy()])
                ends = own[0] if np.isfinite(own).any() else (low[0], high[0])
                axis.plot(ends, [place, place], "-|", color=GREY, linewidth=0.9, zorder=2.6)
                end = max(mean, ends[1])
            _annotate_bar(axis, end, place, format_number(mean), label, runs, THROUGHPUT.column)
    workers = plural(int(layout.panels[0][1]["workers"].iloc[0]), "worker")
    _label_values(figure, axes, f"throughput with {workers} [it/s]{_format_footnote(layout)}")
    notes = (marks.describe_seeds(layout, "line", THROUGHPUT.column), marks.describe_own(layout, "line"))
    marks.draw_legend(figure, [], *notes, marks.describe_repeats(layout, "stroke"))
    return figure


def plot_race(layout: Layout) -> Plot | None:
    """Plot the throughput ratios of races with their 95 % intervals; the baseline is at 1."""
    if all(runs["throughput_ratio"].isna().all() for _, runs in layout.panels):
        return None
    figure, axes = layouts.make_figure(layout, 1, _FRAME + _ROW * len(layout.looks), share="x")
    for axis, (_, runs) in zip(axes, layout.panels, strict=True):
        raced = runs[runs["throughput_ratio"].notna()].drop_duplicates(["cell", "sweep", "race", "race_baseline"])
        axis.axvline(1, color=style.BLACK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1.5)
        means = raced.groupby("label", observed=True)["throughput_ratio"].mean()
        for place, label in enumerate(_name_rows(axis, layout, means.sort_values(ascending=False))):
            ratios = raced.loc[raced["label"] == label, [f"throughput_ratio{end}" for end in ("", "_low", "_high")]]
            if ratios.empty:
                axis.annotate(NOT_RACED, (1, place), (4, 0), textcoords="offset points", va="center", fontsize=7.5)
            for ratio, low, high in ratios.itertuples(index=False):
                axis.plot([low, high], [place, place], "-|", color=GREY, linewidth=0.9, zorder=2.4)
                axis.plot(ratio, place, "o", color=layout.looks[label].colour, markersize=4, zorder=2.5)
            if len(ratios) == 1:
                text = (format_number(ratios.iat[0, 0]), (ratios.iat[0, 2], place), (4, 0))
                axis.annotate(*text, textcoords="offset points", va="center_baseline", fontsize=7.5, bbox=_PAPER)
    ends = pd.concat([runs[["throughput_ratio_low", "throughput_ratio_high"]] for _, runs in layout.panels])
    if ends.max(axis=None) > _FAR * ends.min(axis=None) > 0:
        axes[0].set_xscale("log")  # of all, whose x they share
        axes[0].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[0].xaxis.set_minor_locator(NullLocator())
    _label_values(figure, axes, "times the throughput of the baseline; line: 95 % interval")
    marks.draw_legend(figure, [], marks.describe_repeats(layout, "point"))
    alt = marks.write_alt_text("Throughput in the race", layout, "throughput_ratio", "x")
    return Plot("race", "Throughput in the race", alt, figure)


def plot_breakdown(layout: Layout) -> Plot | None:
    """Plot the mean time of each phase of a step as stacked bars, one for each label; many labels are sorted."""
    if layout.get_measured_runs(STEP.column).empty:
        return None
    figure, axes = layouts.make_figure(layout, 1, _FRAME + _ROW * len(layout.looks), share="x", is_wide=True)
    for axis, (_, runs) in zip(axes, layout.panels, strict=True):
        shown = select_once(runs, STEP.column)
        times = runs[shown].groupby("label")["step_s"].mean().sort_values() * 1e3
        labels = _name_rows(axis, layout, times)
        ends = _draw_stack(axis, runs[shown], labels)
        for place, (label, end) in enumerate(zip(labels, ends, strict=True)):
            _annotate_bar(axis, end, place, f"{format_number(end)} ms", label, runs, STEP.column)
    axes[0].set_xlim(left=0)  # of all, whose x they share
    _label_values(figure, axes, f"time of a step [ms]{_format_footnote(layout)}")
    phases = [Patch(facecolor=c, edgecolor=GREY, linewidth=0.3, label=p) for p, c in style.PHASES.items()]
    marks.draw_legend(figure, phases, layout.describe_means(STEP.column))
    alt = marks.write_alt_text("Time of a step by phase, stacked; in all", layout, "step_s", "ms", 1e3)
    return Plot("breakdown", "Where the time of a step goes", alt, figure)


def _name_rows(axis: Axes, layout: Layout, values: pd.Series) -> list[str]:
    """Name the row of each label; many labels are sorted by value, with a line at the value of the baseline."""
    labels = list(layout.looks)
    if layout.has_many:
        labels = [*values.index, *(label for label in labels if label not in values.index)]
        for baseline in values.index.intersection(list(BASELINES)):
            axis.axvline(values[baseline], color=style.BLACK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=2.5)
    axis.set_yticks(range(len(labels)), map(escape_label, labels))
    for label, text in zip(labels, axis.get_yticklabels(), strict=True):
        if layout.has_many and label in BASELINES:
            text.set_fontweight("bold")
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", visible=True)
    axis.margins(x=0.15)
    return labels


def _draw_stack(axis: Axes, runs: pd.DataFrame, labels: Sequence[str]) -> np.ndarray:
    """Draw the phases of each label's step side by side as one bar; return the lengths of the bars, (labels,)."""
    means = runs.groupby("label")[[*(f"{phase}_s" for phase in csv_columns.PHASES), "step_s"]].mean()
    means = means.reindex(labels).fillna(0).to_numpy("float64").T * 1e3
    parts = np.vstack([means[:-1], np.maximum(means[-1] - means[:-1].sum(0), 0)]).T
    for place, widths in enumerate(parts):
        spans = list(zip(np.cumsum(widths) - widths, widths, strict=True))
        axis.broken_barh(
            spans,
            (place - _THICKNESS / 2, _THICKNESS),
            facecolors=list(style.PHASES.values()),
            edgecolors=GREY,
            linewidths=0.3,
        )
    return parts.sum(1)


def _annotate_bar(axis: Axes, end: float, place: int, text: str, label: str, runs: pd.DataFrame, column: str) -> None:
    """Write the value to the right of the bar, and the words for runs of the label without a value in the column."""
    here = runs[select_once(runs, column) & (runs["label"] == label)]
    texts = [text + "".join(mark for column, mark in MARKS.items() if here[column].any())] if len(here) else []
    texts += [f"mean of {len(here)}"] if here["cell"].nunique() > 1 else []
    axis.annotate(
        ", ".join([*texts, *marks.list_absent(label, runs, marks.choose_words(runs, find_known(runs, column)))]),
        (end, place),
        (4, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=7.5,
        bbox=_PAPER,
    )


def _label_values(figure: Figure, axes: Sequence[Axes], text: str) -> None:
    """Label the axis of values; break the text into lines if it is wider than the axis, and let the figure grow."""
    names = [line for label in axes[0].get_yticklabels() for line in label.get_text().splitlines()]
    lines = layouts.wrap_text(text, int(_CHARACTERS * figure.get_figwidth()) - max(map(len, names), default=0))
    figure.set_figheight(figure.get_figheight() + _LINE * (len(lines) - 1))
    layouts.label_axes(axes, "\n".join(lines), "", "x")
    for axis in axes:
        axis.xaxis.set_major_formatter(layouts.PLAIN)


def _format_footnote(layout: Layout) -> str:
    return "".join(f"; {MARKS[column]} {layout.explain_unfair(column)}" for column in layout.find_unfair())
