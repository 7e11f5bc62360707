"""The plots of a sweep.

Runs that differ only in their seed are lines of the same colour; lines are never averaged. A run
without numbers is named with its status instead. Many compressors become small multiples, or bars
sorted by their length.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import multiprocessing.process
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter, NullLocator

from reports import bars, panels, style
from reports.grid import Grid
from reports.panels import GREY, Layout
from reports.table import NOT_MEASURED
from reports.text import counted, number
from sweep import run as rundir

_NOT_DONE = "x"  # marks the end of a curve that should go on
_MAX_NAMED = 24  # numbers in one alternative text
_MAX_LABELLED = 8  # lines with their last value beside them


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure, and what it shows in words for who does not see it."""

    name: str
    title: str
    alt: str
    figure: Figure

    def path(self, directory: Path) -> Path:
        return directory / f"{self.name}.png"

    def save(self, directory: Path) -> Path:
        """Write `<name>.png`: readers see the old picture or the new one, never a part."""
        path = self.path(directory)
        temporary = directory / f".{path.name}.{os.getpid()}"
        with matplotlib.rc_context(fname=style.STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at worst, names that no installed font can write
            # Not savefig, which lays out and draws everything once more before it draws.
            FigureCanvasAgg(self.figure).print_png(temporary)
        os.replace(temporary, path)
        return path


def save_all(plots: Iterable[Plot], directory: Path) -> dict[Path, Plot]:
    """Write the pictures, in order; returns them by their paths. Each is drawn by a fork of its own, on all cores.

    Drawing is half of the time of a report, and figures do not travel between processes.
    """
    context = multiprocessing.get_context("fork")
    pictures: dict[Path, Plot] = {}
    drawing: list[tuple[multiprocessing.process.BaseProcess, Plot]] = []

    def finish() -> None:
        process, plot = drawing.pop(0)
        process.join()
        if process.exitcode:
            plot.save(directory)  # here, so that the error is told, if it is one

    for plot in plots:
        pictures[plot.path(directory)] = plot
        drawing.append((context.Process(target=plot.save, args=(directory,), daemon=True), plot))
        drawing[-1][0].start()
        if len(drawing) >= len(os.sched_getaffinity(0)):
            finish()
    while drawing:
        finish()
    return pictures


@dataclasses.dataclass(frozen=True)
class _Progress:
    """An x axis for accuracy: a column of epochs.csv, divided by `size`.

    `nothing` is the word for a run that has only zeros there.
    """

    name: str
    title: str
    column: str
    label: str
    share: str = "all"
    size: float = 1.0
    nothing: str = NOT_MEASURED


def plots(grid: Grid, epochs: pd.DataFrame) -> Iterator[Plot]:
    """All plots of a sweep; none where there is no run.

    Args:
        grid: its layout.
        epochs: `Report.epochs` of its runs.
    """
    workers = pd.to_numeric(grid.runs["workers"], errors="coerce").astype("float64")
    runs = grid.runs.assign(workers=workers)[workers >= 1]
    if runs.empty:
        return
    apart, together = panels.lay_out(grid, runs, ["workers"]), panels.lay_out(grid, runs, [])
    size, unit = _time_unit(epochs["time_s"].max())
    with matplotlib.rc_context(fname=style.STYLE):
        if together.has_many and runs["workers"].nunique() == 1:
            alt = _alt("Throughput", together, "iterations_per_second", "it/s")
            yield Plot("throughput", "Throughput", alt, bars.ranking(together))
        else:
            yield _throughput(together)
        yield _accuracy(apart, epochs, _Progress("epoch", "epochs", "epoch", "epoch"))
        # Times grow so much with the number of workers that a common axis would hide the smaller ones.
        time = _Progress("time", "training time", "time_s", f"training time [{unit}]", share="y", size=size)
        yield _accuracy(apart, epochs, time)
        sent = _Progress("bytes", "bytes sent", "sent_bytes", "sent by one worker [B]", nothing="nothing sent")
        yield _accuracy(apart, epochs, sent)
        alt = _alt("Time of a step by phase, stacked; in all", apart, "step_s", "ms", 1e3)
        yield Plot("breakdown", "Where the time of a step goes", alt, bars.breakdown(apart))


def _throughput(layout: Layout) -> Plot:
    parts = [
        runs.assign(value=runs["iterations_per_second"].where(runs["status"] == rundir.DONE))
        for _, runs in layout.panels
    ]
    marks: list[Line2D] = []
    if layout.has_many:
        figure, blocks = panels.small_multiples(layout, 1.1, "workers", "throughput [it/s]")
        for block, runs in zip(blocks, parts, strict=True):
            lines: dict[str, list[np.ndarray]] = {}
            for (label, _), line in runs.sort_values("workers").groupby(["label", "repeat"]):
                lines.setdefault(label, []).append(line[["workers", "value"]].dropna().to_numpy())
            for label, axis in block.items():
                panels.backdrop(axis, lines)
                here = runs[runs["label"] == label]
                _speeds(axis, here, layout.only(label), sorted(runs["workers"].unique()))
                panels.name_absent(axis, here, panels.words_for(here, here["value"].notna()), layout.only(label))
        marks = panels.backdrop_marks(layout)
    else:
        figure, axes = panels.figure_of(layout, 2, 2.6)
        for axis, runs in zip(axes, parts, strict=True):
            counts = sorted(runs["workers"].unique())
            ends = _speeds(axis, runs, layout, counts)
            panels.label_ends(axis, ends, layout)
            for count in counts:
                here = runs[runs["workers"] == count]
                panels.name_absent(axis, here, panels.words_for(here, here["value"].notna()), layout, count)
            axis.set(xlabel="workers", ylabel="throughput [it/s]")
    hollow = Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none")
    why = [panels.UNFAIR[column] for column in layout.unfair()]
    hollow.set_label(f"hollow: {' or '.join(why)}, not comparable")
    marks += [hollow] if why else []
    panels.legend(figure, marks, layout.repeats)
    alt = _alt("Throughput", layout, "iterations_per_second", "it/s")
    return Plot("throughput", "Throughput against workers", alt, figure)


def _speeds(
    axis: Axes, runs: pd.DataFrame, layout: Layout, counts: Sequence[float]
) -> dict[str, tuple[float, float, str]]:
    """Draw the `value` of all runs against their workers; what to write at the ends of the lines."""
    values = runs.pivot(index=["label", "repeat"], columns="workers", values="value").reindex(columns=counts)
    ends = {}
    for label, lines in values.groupby(level="label", sort=False):
        look = layout.looks[str(label)]
        axis.plot(counts, lines.T, look.marker, linestyle="-", color=look.colour)
        for count, value in lines.mean().dropna().items():
            ends[str(label)] = (count, value, panels.plain(str(label), 24))
    for label, unfair in runs[runs[list(panels.UNFAIR)].any(axis=1)].groupby("label"):
        look = layout.looks[str(label)]
        axis.plot(unfair["workers"], unfair["value"], look.marker, color=look.colour, markerfacecolor="white")
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(int(count)) for count in counts])
    axis.xaxis.set_minor_locator(NullLocator())
    margin = max((counts[-1] / counts[0]) ** 0.08, 1.15)
    axis.set_xlim(counts[0] / margin, counts[-1] * margin)
    axis.set_ylim(bottom=0)
    return ends


def _accuracy(layout: Layout, epochs: pd.DataFrame, progress: _Progress) -> Plot:
    points = pd.DataFrame(
        {"x": epochs[progress.column] / progress.size, "y": epochs["test_accuracy"] * 100}, dtype=float
    )
    points = points[points.abs().lt(math.inf).all(axis=1)]
    curves = {str(run): line.to_numpy() for run, line in points.groupby(epochs["run"], observed=True)}
    y = "test accuracy [%]"
    drawn: list[dict[str, tuple[float, float, str]]] = []
    if layout.has_many:
        figure, blocks = panels.small_multiples(layout, 1.1, progress.label, y)
        axes = [axis for block in blocks for axis in block.values()]
        for block, (_, runs) in zip(blocks, layout.panels, strict=True):
            lines = {
                str(label): [curves[run] for run in group["run"] if run in curves and curves[run][:, 0].any()]
                for label, group in runs.groupby("label")
            }
            for label, axis in block.items():
                panels.backdrop(axis, lines)
                ends = _curves(axis, runs[runs["label"] == label], layout.only(label), curves, progress)
                panels.title_right(axis, "".join(text for _, _, text in ends.values()))
                drawn.append({})
        above = Line2D([], [], linestyle="none", label="number: where it ends [%]")
        marks = [*panels.backdrop_marks(layout), above]
    else:
        figure, axes = panels.figure_of(layout, layout.columns, 2.1, progress.share)
        for axis, (_, runs) in zip(axes, layout.panels, strict=True):
            drawn.append(_curves(axis, runs, layout, curves, progress))
        panels.label_axes(axes, progress.label, y, progress.share)
        marks = [
            Line2D([], [], color=look.colour, marker=look.marker, label=panels.plain(label))
            for label, look in layout.looks.items()
        ]
    # Compressors tend to be decades apart; where they are not, a logarithmic axis would have no numbers on it.
    is_wide = max(axis.dataLim.x1 for axis in axes) > 20 * min(axis.dataLim.minposx for axis in axes)
    for axis, ends in zip(axes, drawn, strict=True):
        if progress.column == "sent_bytes":
            axis.set_xscale("log" if is_wide else "linear")
            axis.xaxis.set_major_formatter(EngFormatter("B"))
            axis.xaxis.set_minor_formatter(NullFormatter())
            if layout.has_many:
                axis.xaxis.set_minor_locator(NullLocator())
        elif progress.column == "time_s":
            axis.set_xlim(left=0)
        else:
            axis.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
            if len(ends) <= _MAX_LABELLED:  # only here do all lines end at the same place
                panels.label_ends(axis, ends, layout)
    if layout.has_many:
        panels.same_limits(axes, progress.share)
    if any(line.get_marker() == _NOT_DONE for axis in axes for line in axis.lines):
        marks.append(Line2D([], [], color=GREY, marker=_NOT_DONE, linestyle="none", label="not done"))
    panels.legend(figure, marks, layout.repeats)
    alt = _alt(f"Test accuracy against {progress.title}; at the end", layout, "accuracy", "%", 100)
    return Plot(f"accuracy_{progress.name}", f"Test accuracy against {progress.title}", alt, figure)


def _curves(
    axis: Axes, runs: pd.DataFrame, layout: Layout, curves: Mapping[str, np.ndarray], progress: _Progress
) -> dict[str, tuple[float, float, str]]:
    """Draw one line per run; what to write at the ends of those that are alone in their colour."""
    words = panels.words_for(runs, pd.Series(False, runs.index))
    ends: dict[str, tuple[float, float, str]] = {}
    for label, group in runs.groupby("label", sort=False):
        look, is_alone = layout.looks[str(label)], len(group) == 1
        lines: list[np.ndarray] = []
        tips: dict[str, list[np.ndarray]] = {look.marker: [], _NOT_DONE: []}
        for place, run, status in zip(group.index, group["run"], group["status"], strict=True):
            line = curves.get(run)
            if line is None or not line[:, 0].any():
                words[place] = words[place] if line is None else progress.nothing
                continue
            words[place] = ""
            lines.append(line)
            tips[look.marker if status == rundir.DONE else _NOT_DONE].append(line[-1])
        width = 1.5 if is_alone else 0.8
        axis.add_collection(LineCollection(lines, colors=look.colour, linewidths=width, capstyle="round", zorder=2))
        for marker, points in tips.items():
            if points:
                axis.plot([x for x, _ in points], [y for _, y in points], marker, color=look.colour)
        if is_alone:
            ends |= {str(label): (x, y, number(y)) for x, y in tips[look.marker]}
    axis.autoscale_view()
    panels.name_absent(axis, runs, words, layout)
    return ends


def _alt(what: str, layout: Layout, column: str, unit: str, scale: float = 1) -> str:
    runs = layout.all_done().dropna(subset=column)
    values = list(runs[column] * scale)
    if not values:
        return f"{what}: no run has finished."
    if len(values) > _MAX_NAMED:
        return f"{what}: {counted(len(values), 'run')} from {number(min(values))} to {number(max(values))} {unit}."
    names = [
        f"{label}, {counted(int(count), 'worker')}" for label, count in zip(runs["label"], runs["workers"], strict=True)
    ]
    return (
        f"{what}, in {unit}: " + "; ".join(f"{name}: {number(v)}" for name, v in zip(names, values, strict=True)) + "."
    )


def _time_unit(longest: float) -> tuple[float, str]:
    return (3600, "h") if longest > 7200 else (60, "min") if longest > 600 else (1, "s")
