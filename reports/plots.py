"""The plots of a sweep.

A panel compares compressors and nothing else: there is one for each number of workers and each
setting of what else was swept. Runs that differ only in their seed are lines of the same colour in
the same panel; lines are never averaged. A run without numbers is named with its status instead.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from reports import style
from reports.grid import Grid
from reports.tables import DAGGER, MISSING, NOT_MEASURED
from reports.text import counted, listed, number, order, setting
from sweep import run as rundir

_MAX_PANELS = 24
_REPEATS = ("seed", "run")  # runs that differ in nothing else share a panel
_WIDTH = 7.2  # inches
_LINE = 9.5  # points from one line of text to the next
_GREY = "#666666"
_ENDED_EARLY = (rundir.FAILED, rundir.DIVERGED, rundir.TIMEOUT, rundir.PREEMPTED, rundir.CANCELLED)


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure, and what it shows in words for who does not see it."""

    name: str
    title: str
    alt: str
    figure: Figure

    def save(self, directory: Path) -> Path:
        """Write `<name>.png`: readers see the old picture or the new one, never a part."""
        path = directory / f"{self.name}.png"
        temporary = directory / f".{path.name}.{os.getpid()}"
        with matplotlib.rc_context(fname=style.STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at worst, names that no installed font can write
            self.figure.savefig(temporary, format="png")
        os.replace(temporary, path)
        return path


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The panels, each with its runs, and the keys that differ between the lines of one colour."""

    panels: Sequence[tuple[str, pd.DataFrame]]
    repeats: Sequence[str]
    labels: Sequence[str]
    looks: Mapping[str, style.Look]
    columns: int


def plots(grid: Grid, epochs: pd.DataFrame) -> Iterator[Plot]:
    """All plots of a sweep.

    Args:
        grid: its layout.
        epochs: `Report.epochs` of its runs.
    """
    runs = grid.runs.assign(workers=pd.to_numeric(grid.runs["workers"], errors="coerce")).dropna(subset="workers")
    by_scale = _lay_out(grid, runs, [])
    by_workers = _lay_out(grid, runs, ["workers"])
    curves = {str(run): rows for run, rows in epochs.groupby("run", observed=True)}
    size, unit = _time_unit(epochs["time_s"].max())
    with matplotlib.rc_context(fname=style.STYLE):
        yield _throughput(by_scale)
        yield _accuracy(by_workers, curves, "epoch", "epochs", "epoch", 1, "epoch")
        yield _accuracy(by_workers, curves, "time", "training time", "time_s", size, f"training time [{unit}]")
        yield _accuracy(by_workers, curves, "bytes", "bytes sent", "sent_bytes", 1, "sent by one worker [bytes]")
        yield _breakdown(by_workers)


def _throughput(layout: _Layout) -> Plot:
    figure, axes = _figure(len(layout.panels), columns=2, height=2.6)
    for axis, (title, runs) in zip(axes, layout.panels, strict=True):
        axis.set_title(title)
        measured = runs.assign(value=runs["iterations_per_second"].where(runs["status"] == rundir.DONE))
        counts = sorted(measured["workers"].unique())
        ends: dict[str, float] = {}
        for _, line in measured.groupby(["label", *layout.repeats], dropna=False, sort=False):
            label = line["label"].iloc[0]
            look = layout.looks[label]
            values = line.set_index("workers")["value"].reindex(counts)
            axis.plot(counts, values, look.marker, linestyle="-", color=look.colour)
            crowded = line[line["oversubscribed"].fillna(False)]
            axis.plot(crowded["workers"], crowded["value"], look.marker, color=look.colour, markerfacecolor="white")
            if values.notna().any():
                ends[label] = values.dropna().iloc[-1]
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(int(count)) for count in counts])
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.tick_params(which="minor", bottom=False)
        axis.margins(x=0.08)
        axis.set_ylim(bottom=0)
        axis.set(xlabel="workers", ylabel="throughput [it/s]")
        _label_ends(axis, ends, layout.looks)
        for count in counts:
            here = measured[measured["workers"] == count]
            _name_absent(axis, count, layout, here, here["value"].notna())
    marks = []
    if any(runs["oversubscribed"].any() for _, runs in layout.panels):
        hollow = {"color": _GREY, "markerfacecolor": "white", "linestyle": "none"}
        marks.append(Line2D([], [], marker="o", label="hollow: more workers than cores, not comparable", **hollow))
    _legend(figure, marks, layout.repeats)
    done = pd.concat([runs[runs["status"] == rundir.DONE] for _, runs in layout.panels])
    alt = _alt("Throughput in iterations per second", done, "iterations_per_second", "it/s")
    return Plot("throughput", "Throughput against workers", alt, figure)


def _accuracy(
    layout: _Layout,
    curves: Mapping[str, pd.DataFrame],
    name: str,
    against: str,
    column: str,
    scale: float,
    axis_label: str,
) -> Plot:
    figure, axes = _figure(len(layout.panels), columns=layout.columns, height=2.1, share="all")
    cut_short = False
    for axis, (title, runs) in zip(axes, layout.panels, strict=True):
        axis.set_title(title)
        shown = []
        repeated = runs.duplicated("label").any()
        for run, label, status in zip(runs["run"], runs["label"], runs["status"], strict=True):
            look = layout.looks[label]
            rows = curves.get(run, pd.DataFrame(columns=[column, "test_accuracy"], dtype=float))
            rows = rows[[column, "test_accuracy"]].dropna()
            shown.append(len(rows) > 0)
            early = status in _ENDED_EARLY
            cut_short |= early and shown[-1]
            axis.plot(
                rows[column] / scale,
                rows["test_accuracy"] * 100,
                color=look.colour,
                linewidth=0.8 if repeated else 1.5,
                marker="x" if early else look.marker,
                markevery=[len(rows) - 1] if len(rows) else [],
            )
        if column == "sent_bytes":
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(EngFormatter("B"))
            axis.xaxis.set_minor_formatter(NullFormatter())
        _name_absent(axis, None, layout, runs, pd.Series(shown, runs.index, dtype=bool))
    _label_outside(axes, axis_label, "test accuracy [%]")
    marks = [Line2D([], [], color=look.colour, marker=look.marker, label=_plain(label)) for label, look in layout.looks.items()]
    if cut_short:
        marks.append(Line2D([], [], color=_GREY, marker="x", linestyle="none", label="ended early"))
    _legend(figure, marks, layout.repeats)
    final = pd.concat([runs[runs["status"] == rundir.DONE] for _, runs in layout.panels])
    alt = _alt(f"Test accuracy in % against {against}; at the end", final, "accuracy", "%", 100)
    return Plot(f"accuracy_{name}", f"Test accuracy against {against}", alt, figure)


def _breakdown(layout: _Layout) -> Plot:
    figure, axes = _figure(len(layout.panels), columns=1, height=0.4 + 0.2 * len(layout.labels), share="x")
    columns = [f"{phase}_s" for phase in rundir.PHASES]
    for axis, (title, runs) in zip(axes, layout.panels, strict=True):
        axis.set_title(title)
        for place, label in enumerate(layout.labels):
            here = runs[runs["label"] == label]
            measured = (here["status"] == rundir.DONE) & here["step_s"].notna()
            means = here[measured][[*columns, "step_s"]].mean() * 1e3
            end = 0.0
            if measured.any():
                parts = means[columns].fillna(0)
                parts["other_s"] = max(means["step_s"] - parts.sum(), 0)
                for phase, width in zip(style.PHASES, parts, strict=True):
                    axis.barh(place, width, 0.72, end, color=style.PHASES[phase], edgecolor=_GREY, linewidth=0.3)
                    end += width
            mark = DAGGER * bool(here["oversubscribed"].any())
            texts = [f"{number(end)} ms{mark}"] if measured.any() else []
            texts += [f"mean of {measured.sum()}"] if measured.sum() > 1 else []
            texts += [text for _, text in _absent([label], here, measured)]
            axis.annotate(", ".join(texts), (end, place), (4, 0), textcoords="offset points", va="center", fontsize=7.5)
        axis.set_yticks(range(len(layout.labels)), map(_plain, layout.labels))
        axis.set_ylim(len(layout.labels) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", visible=False)
        axis.grid(axis="x", visible=True)
        axis.margins(x=0.18)
    _label_outside(axes, "time of a step [ms]", "")
    marks: list[Line2D | Patch] = [
        Patch(facecolor=colour, edgecolor=_GREY, linewidth=0.3, label=phase) for phase, colour in style.PHASES.items()
    ]
    if any(runs["oversubscribed"].any() for _, runs in layout.panels):
        marks.append(Line2D([], [], linestyle="none", label=f"{DAGGER} more workers than cores"))
    _legend(figure, marks)
    done = pd.concat([runs[runs["status"] == rundir.DONE] for _, runs in layout.panels])
    alt = _alt("Time of a step by phase, stacked; in all", done, "step_s", "ms", 1e3)
    return Plot("breakdown", "Where the time of a step goes", alt, figure)


def _lay_out(grid: Grid, runs: pd.DataFrame, by: list[str]) -> _Layout:
    """One panel for each setting of the swept keys and each value of `by`, while one can look at so many."""
    apart = [key for key in grid.keys if key not in _REPEATS]
    if apart and len(runs.drop_duplicates([*apart, *by])) > _MAX_PANELS:
        apart = []
    keys = [*apart, *by]
    groups = list(runs.groupby(keys, dropna=False, sort=False)) if keys else []
    groups.sort(key=lambda group: [order(value) for value in group[0]])
    panels = [(_title(keys, values), part) for values, part in groups] or [("", runs)]
    repeats = [key for key in grid.keys if key not in apart]
    columns = len(grid.workers) if apart and len(grid.workers) <= 4 else math.ceil(len(panels) / math.ceil(len(panels) / 4))
    return _Layout(panels, repeats, grid.labels, style.looks(grid.labels), columns)


def _title(keys: Sequence[str], values: Sequence[Any]) -> str:
    texts = dict(zip(keys, map(setting, values), strict=True))
    workers = [counted(int(float(texts.pop("workers"))), "worker")] if "workers" in texts else []
    return _plain(", ".join([*workers, *(f"{key}={text or 'null'}" for key, text in texts.items())]), 60)


def _figure(panels: int, columns: int, height: float, share: str | bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of `columns` panels a row, each `height` inches high."""
    columns = min(columns, panels)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(_WIDTH, 0.4 + height * rows))
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, sharex=bool(share), sharey=share == "all", squeeze=False).flat)
    for unused in axes[panels:]:
        unused.remove()
    return figure, axes[:panels]


def _label_outside(axes: Sequence[Axes], x: str, y: str) -> None:
    """Name the axes where nothing is below or left of them; inside, the neighbour's numbers apply."""
    for place, axis in enumerate(axes):
        subplot = axis.get_subplotspec()
        columns = subplot.get_gridspec().ncols if subplot else 1
        bottom, left = place + columns >= len(axes), place % columns == 0
        axis.tick_params(labelbottom=bottom, labelleft=left)
        axis.set(xlabel=x if bottom else "", ylabel=y if left else "")


def _label_ends(axis: Axes, ends: Mapping[str, float], looks: Mapping[str, style.Look]) -> None:
    """Write each line's name right of its end, moved up or down where names would overlap."""
    top = axis.get_ylim()[1]
    figure = axis.get_figure()
    rows = len(figure.axes) if figure else 1
    height = 72 * 0.75 * (axis.figure.get_size_inches()[1] / rows)
    heights = {label: value / top * height for label, value in ends.items()}
    for (label, ideal), moved in zip(sorted(heights.items(), key=lambda item: item[1]), _spread(heights.values()), strict=True):
        axis.annotate(
            _plain(label),
            (1, ideal / height),
            (4, moved - ideal),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            color=looks[label].colour,
        )


def _spread(heights: Iterable[float], gap: float = _LINE) -> list[float]:
    """The heights in ascending order, moved as little as possible until neighbours are `gap` apart.

    Isotonic regression by pooling adjacent violators: heights that are too close share their mean.
    """
    pools: list[tuple[float, int]] = []
    for rank, height in enumerate(sorted(heights)):
        total, count = height - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            previous = pools.pop()
            total, count = total + previous[0], count + previous[1]
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    return [mean + rank * gap for rank, mean in enumerate(means)]


def _absent(labels: Sequence[str], runs: pd.DataFrame, shown: pd.Series) -> list[tuple[str, str]]:
    """Label and words for the runs that have nothing to show: `failed`, `diverged (2)`, `missing`."""
    absent = []
    for label in labels:
        here = runs["label"] == label
        words = collections.Counter(runs["status"][here & ~shown].replace(rundir.DONE, NOT_MEASURED))
        if not here.any():
            words[MISSING] = 1
        absent += [(label, f"{word} ({count})" if count > 1 else word) for word, count in words.items()]
    return absent


def _name_absent(axis: Axes, x: float | None, layout: _Layout, runs: pd.DataFrame, shown: pd.Series) -> None:
    """Name the runs that are not drawn at the foot of the panel: at `x`, or at its right."""
    where = {"xy": (0.98, 0.02), "xycoords": "axes fraction", "ha": "right"}
    if x is not None:
        where = {"xy": (x, 0.02), "xycoords": ("data", "axes fraction"), "ha": "center"}
    for line, (label, word) in enumerate(reversed(_absent(layout.labels, runs, shown))):
        axis.annotate(
            f"{_plain(label)}: {word}",
            xytext=(0, line * (_LINE - 1)),
            textcoords="offset points",
            fontsize=7,
            color=layout.looks[label].colour,
            **where,
        )


def _legend(figure: Figure, marks: Sequence[Line2D | Patch], repeats: Sequence[str] = ()) -> None:
    title = f"one line for each {listed([_plain(key) for key in repeats])}" if repeats else None
    if marks or title:
        longest = max((len(str(mark.get_label())) for mark in marks), default=1)
        columns = max(1, min(len(marks), 100 // (longest + 6)))
        legend = figure.legend(handles=marks, loc="outside upper left", ncols=columns, title=title, title_fontsize=8)
        legend.set_alignment("left")


def _alt(what: str, runs: pd.DataFrame, column: str, unit: str, scale: float = 1) -> str:
    values = runs[column].dropna() * scale
    if not len(values):
        return f"{what}: no run has finished."
    if len(values) > 24:
        return f"{what}: {counted(len(values), 'run')} from {number(values.min())} to {number(values.max())} {unit}."
    names = runs.loc[values.index, ["label", "workers"]].itertuples(index=False)
    texts = [f"{label} with {counted(int(count), 'worker')} {number(v)}" for (label, count), v in zip(names, values, strict=True)]
    return f"{what} [{unit}]: {'; '.join(texts)}."


def _plain(text: str, limit: int = 40) -> str:
    """A name as matplotlib shall write it: `$` starts no formula, and one name doesn't fill the figure."""
    return (text if len(text) <= limit else f"{text[: limit - 1]}…").replace("$", r"\$")


def _time_unit(longest: float) -> tuple[float, str]:
    return (3600, "h") if longest > 7200 else (60, "min") if longest > 600 else (1, "s")
