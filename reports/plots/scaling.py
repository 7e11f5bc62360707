"""Plots of throughput and scaling efficiency against the number of workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from reports.analysis.measures import find_known, find_own_intervals, select_measured, select_once
from reports.analysis.statistics import compute_band
from reports.analysis.table import is_marked
from reports.plots import bars, marks
from reports.plots import layout as layouts
from reports.plots.layout import GREY, Layout, find_baseline
from reports.plots.picture import Plot

_IDEAL = (0, (1, 1.5))  # dashes
_HIGHER = 1.5  # most that the ideal may stretch the axes of the lines


@dataclasses.dataclass(frozen=True)
class _Curve:
    """The values of one label (and setting of other keys) by number of workers, (workers,) each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    unfair: np.ndarray


def plot_throughput(layout: Layout) -> Plot | None:
    """Plot iterations per second: bars if there is one number of workers, else lines, and the line of ideal scaling.

    Ideal scaling keeps the samples per second and worker that the baseline has with the fewest workers.
    """
    runs = pd.concat([runs for _, runs in layout.panels])
    if not select_once(runs, "iterations_per_second").any():
        return None
    if runs["workers"].nunique() == 1:
        alt = marks.write_alt_text("Throughput", layout, "iterations_per_second", "it/s")
        return Plot("throughput", "Throughput", alt, bars.draw_ranking(layout))
    title = "Throughput against workers"
    note = marks.describe_own(layout, "bars")
    return _plot(layout, "throughput", title, "iterations_per_second", "throughput [it/s]", "it/s", note=note)


def plot_efficiency(layout: Layout) -> Plot | None:
    """Plot samples per second and worker relative to those with the fewest workers; None for one number of workers.

    The fewest are those of the panel; a label without a value for them has no efficiency.
    """
    panels = [(title, runs.assign(efficiency=_compute_efficiency(runs))) for title, runs in layout.panels]
    panels = [
        (title, runs)
        for title, runs in panels
        if runs.loc[select_once(runs, "efficiency"), "workers"].nunique() > 1  # of one number it is 100 % by definition
    ]
    if not panels:
        return None
    layout = dataclasses.replace(layout, panels=panels)
    return _plot(
        layout, "efficiency", "Scaling efficiency against workers", "efficiency", "scaling efficiency [%]", "%", 100
    )


def _compute_efficiency(runs: pd.DataFrame) -> pd.Series:
    each = (runs["samples_per_second"] / runs["workers"]).where(select_measured(runs, "efficiency"))
    fewest = runs["workers"].min()
    line = [runs["label"], runs["repeat"]]
    return each / each.where(runs["workers"] == fewest).groupby(line).transform("mean")


def _plot(
    layout: Layout, name: str, title: str, column: str, label: str, unit: str, scale: float = 1, note: str = ""
) -> Plot:
    parts = [
        runs.assign(
            value=(runs[column] * scale).where(select_once(runs, column)),
            is_known=find_known(runs, column),
        )
        for _, runs in layout.panels
    ]
    explained: list[Line2D] = []
    if layout.has_many:
        figure, blocks = layouts.make_small_multiples(layout, "workers", label)
        for block, runs in zip(blocks, parts, strict=True):
            counts = sorted(runs["workers"].unique())
            found = _make_curves(runs, counts, bool(note))
            lines = {
                one: [points[~np.isnan(points[:, 1])] for points in (np.column_stack([counts, c.mean]) for c in curves)]
                for one, curves in found.items()
            }
            for one, axis in block.items():
                marks.draw_backdrop(axis, lines)
                here = runs[runs["label"] == one]
                _draw(axis, found.get(one, []), counts, layout.looks[one].colour, layout.looks[one].marker)
                marks.name_absent(axis, here, marks.choose_words(here, here["is_known"]), layout.select_label(one))
                _draw_ideal(axis, name, runs, [one])
                _frame_axis(axis, counts)
            layouts.share_limits(list(block.values()), "y")
        layouts.draw_grid(blocks)
        explained = marks.make_backdrop_marks(layout)
    else:
        figure, axes = layouts.make_figure(layout, 2, 2.3)
        for axis, runs in zip(axes, parts, strict=True):
            counts = sorted(runs["workers"].unique())
            ends = {}
            for one, curves in _make_curves(runs, counts, bool(note)).items():
                _draw(axis, curves, counts, layout.looks[one].colour, layout.looks[one].marker)
                for curve in curves:
                    last = np.flatnonzero(~np.isnan(curve.mean))[-1]
                    ends[one] = (counts[last], float(curve.mean[last]), layouts.escape_label(one, 24))
            _draw_ideal(axis, name, runs, list(layout.looks))
            _frame_axis(axis, counts)
            marks.label_ends(axis, ends, layout)
            for count in counts:
                here = runs[runs["workers"] == count]
                marks.name_absent(axis, here, marks.choose_words(here, here["is_known"]), layout, count)
            axis.set(xlabel="workers", ylabel=label)
    of = f" (from {find_baseline(list(layout.looks))})" if name == "throughput" and not layout.has_many else ""
    explained.append(
        Line2D([], [], color=GREY, linestyle=_IDEAL, linewidth=1, label=f"ideal{layouts.escape_label(of)}")
    )
    if why := list(map(layout.explain_unfair, layout.find_unfair())):
        hollow = Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none")
        hollow.set_label(f"hollow: {' or '.join(why)}")
        explained.append(hollow)
    notes = marks.describe_seeds(layout, "bars", column), note, marks.describe_repeats(layout)
    marks.draw_legend(figure, explained, *notes)
    return Plot(name, title, marks.write_alt_text(title.partition(" against")[0], layout, column, unit, scale), figure)


def _make_curves(runs: pd.DataFrame, counts: Sequence[float], has_own: bool) -> dict[str, list[_Curve]]:
    """Return the curves of each label, one for each setting of other keys; curves without values are left out.

    Args:
        has_own: whether the values are throughputs, which have an interval even if measured by a single run.
    """
    found: dict[str, list[_Curve]] = {}
    runs = runs.reset_index(drop=True)
    own = np.full((len(runs), 2), np.nan)
    if has_own:
        known = runs["value"].notna().to_numpy(bool)
        own[known] = find_own_intervals(runs[known])
    lines = runs.assign(unfair=is_marked(runs)).groupby(["label", "repeat"], sort=False)
    for (label, _), line in lines:
        here = line["workers"].to_numpy()[:, None] == np.asarray(counts)
        values = np.where(here, line["value"].to_numpy("float64", na_value=np.nan)[:, None], np.nan)
        if np.isfinite(values).any():
            unfair = (here & line["unfair"].to_numpy(bool)[:, None]).any(axis=0)
            curve = _Curve(*compute_band(values), unfair)
            if has_own:
                for row, place in np.argwhere(here & np.isfinite(own[line.index])[:, :1]):
                    curve.low[place], curve.high[place] = own[line.index[row]]
            found.setdefault(label, []).append(curve)
    return found


def _draw(axis: Axes, curves: Sequence[_Curve], counts: Sequence[float], colour: str, marker: str) -> None:
    """Draw the lines of a label, all at once."""
    if not curves:
        return
    mean, low, high = (np.stack([getattr(curve, side) for curve in curves]) for side in ("mean", "low", "high"))
    unfair, x = np.stack([curve.unfair for curve in curves]), np.broadcast_to(np.asarray(counts, float), mean.shape)
    axis.add_collection(LineCollection(list(np.stack([x, mean], axis=2)), colors=colour))
    axis.plot(x[~unfair], mean[~unfair], marker, color=colour)
    both = ~np.isnan(low)
    if both.any():
        bars = np.stack([(mean - low)[both], (high - mean)[both]])
        axis.errorbar(x[both], mean[both], bars, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2)
    if unfair.any():
        axis.plot(x[unfair], mean[unfair], marker, color=colour, markerfacecolor="white")


def _draw_ideal(axis: Axes, name: str, runs: pd.DataFrame, labels: Sequence[str]) -> None:
    """Draw ideal scaling as a dotted line, which may leave the axes at the top: it would make other lines small."""
    axis.autoscale_view()
    top = axis.get_ylim()[1]
    if name == "efficiency":
        axis.axhline(100, color=GREY, linestyle=_IDEAL, linewidth=1, zorder=1.3)
        axis.set_ylim(0, max(top, 108))
        return
    done = runs[(runs["label"] == find_baseline(labels)) & runs["value"].notna()]
    means = done.groupby("workers")[["samples_per_second", "value"]].mean().sort_index()
    if len(means) > 1 and means["samples_per_second"].iloc[0] > 0:
        # As many samples per second and worker; the size of a step depends on how the batch is divided.
        batch = means["samples_per_second"] / means["value"]
        ideal = means["samples_per_second"].iloc[0] * means.index / means.index[0] / batch
        axis.plot(means.index, ideal, linestyle=_IDEAL, color=GREY, linewidth=1, zorder=1.3)
        top = min(max(top, 1.05 * ideal.max()), _HIGHER * top)
    axis.set_ylim(0, top)


def _frame_axis(axis: Axes, counts: Sequence[float]) -> None:
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(counts))
    axis.xaxis.set_major_formatter(FixedFormatter([str(int(count)) for count in counts]))
    axis.xaxis.set_minor_locator(NullLocator())
    margin = max((counts[-1] / counts[0]) ** 0.08, 1.15)
    axis.set_xlim(counts[0] / margin, counts[-1] * margin)
