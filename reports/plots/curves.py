"""Plots over training: accuracy and loss, compression error, memory norm, consensus distance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from reports.analysis.measures import find_least_loss, name_metric, shows_error
from reports.analysis.table import NOT_MEASURED
from reports.plots import layout as layouts
from reports.plots import marks
from reports.plots.layout import GREY, SMALL, WIDE, Layout, escape_label
from reports.plots.lines import (
    MAX_LINES,
    Line,
    RunPoints,
    collect_points,
    find_shown,
    make_lines,
    make_outline,
    name_runs,
)
from reports.plots.picture import Plot
from reports.reading.columns import METRIC
from reports.reading.text import choose_byte_unit, format_number, join_words

_NOT_DONE = "x"  # marks the end of an unfinished curve
_DASHES = (0, (2.5, 1.5))  # of a line of the training set
_LEAST = (0, (6, 2))  # dashes of the line at the least loss
_THIN = 0.8  # points
_MAX_LABELLED = 8  # lines with their last value beside them
_MAX_BANDS = 4  # of one label in a panel, above which bands would hide each other
_MOST_BESIDE = 3.0  # of lines on a logarithmic axis: how far it reaches for their bands, as a factor


@dataclasses.dataclass(frozen=True)
class XAxis:
    """An x axis: a column of epochs.csv or steps.csv, divided by `size`.

    `nothing` is the word for a run that has only zeros in this column. `share` tells which axes the panels have in
    common.
    """

    name: str
    title: str
    column: str
    label: str
    share: str = "all"
    size: float = 1.0
    nothing: str = NOT_MEASURED


@dataclasses.dataclass(frozen=True)
class YAxis:
    """A y axis: `offset` plus a column times `scale`; `result` is the column of `Report.runs` with the same quantity.

    `beside` is a second column, drawn as dashed lines, and `range` names the columns at the ends of a band around them.
    `legend` says what full and dashed lines are; `note` is a further text of the legend. With `needs_beside`, the
    measure is plotted only if some run has values of `beside`. With `is_local`, only runs whose workers have different
    models are plotted. `is_log` asks for a logarithmic axis, `may_be_log` allows it where values span decades. Where
    accuracies are high, `error` is plotted in place of the measure. No value is above `most`. With `has_least`, a line
    shows the least loss that a model can have on the test set, if it is known and the same for all runs.
    """

    name: str
    title: str
    column: str
    label: str
    unit: str
    scale: float = 1.0
    beside: str = ""
    result: str = ""
    offset: float = 0.0
    digits: int = 3
    is_log: bool = False
    may_be_log: bool = True
    from_zero: bool = False
    legend: tuple[str, str] = ("test set", "training set")
    range: tuple[str, str] | None = None
    needs_beside: bool = False
    note: str = ""
    is_local: bool = False
    error: YAxis | None = None
    most: float = math.inf
    has_least: bool = False


def make_time_axis(longest: float) -> XAxis:
    """Return the axis of training time, in the unit that suits the longest time (in seconds).

    Panels do not share this axis: times grow so much with the number of workers that the shorter ones would be hidden.
    """
    size, unit = (3600, "h") if longest > 7200 else (60, "min") if longest > 600 else (1, "s")
    return XAxis("time", "training time", "time_s", f"training time [{unit}]", share="y", size=size)


def make_metric_axis(column: str) -> YAxis:
    """Return the axis of a metric of the runs' tasks, such as metric.mae."""
    name = column.removeprefix(METRIC)
    return YAxis(f"metric_{name}", name_metric(name), column, name, "", result=column)


def make_bytes_axis(sent: pd.Series) -> XAxis:
    """Return the axis of bytes sent, in the unit that suits the middle of these values."""
    size, unit = choose_middle_unit(sent.to_numpy("float64", na_value=np.nan))
    label = f"sent by one worker [{unit}]"
    return XAxis("bytes", "bytes sent", "sent_bytes", label, size=size, nothing="nothing sent")


def make_tokens_axis(most: float) -> XAxis:
    """Return the axis of tokens that all workers have seen, in the unit that suits the most."""
    size, unit = (1e9, "billion ") if most > 2e9 else (1e6, "million ") if most > 2e6 else (1e3, "thousand ")
    return XAxis("tokens", "tokens", "tokens", f"{unit}tokens", size=size)


def choose_middle_unit(sizes: np.ndarray) -> tuple[float, str]:
    """Return the unit of bytes that suits the middle of the positive sizes on a logarithmic axis."""
    known = sizes[np.isfinite(sizes) & (sizes > 0)]
    return choose_byte_unit(float(np.sqrt(known.min() * known.max())) if len(known) else 0.0)


EPOCH = XAxis("epoch", "epochs", "epoch", "epoch")
STEP = XAxis("step", "steps", "step", "step")


def _take_error(of: YAxis, title: str) -> YAxis:
    """Return an accuracy with its error."""
    error = dataclasses.replace(
        of, title=title, label="error [%]", scale=-of.scale, offset=of.scale, digits=2, is_log=True, most=of.scale
    )
    return dataclasses.replace(of, error=error)


ACCURACY = _take_error(
    YAxis(
        "accuracy",
        "Accuracy",
        "test_accuracy",
        "accuracy [%]",
        "%",
        100,
        "train_accuracy",
        "accuracy",
        may_be_log=False,
    ),
    "Error",
)
LOSS = YAxis("loss", "Loss", "test_loss", "loss", "", 1, "train_loss", "loss", has_least=True)
ERROR = YAxis(
    "compression_error",
    "Compression error",
    "compression_error",
    "‖x − Q(x)‖ / ‖x‖",
    "relative",
    result="compression_error",
    may_be_log=False,
    from_zero=True,
)
MEMORY = YAxis(
    "memory_norm", "Norm of what memory withholds", "memory_norm", "memory norm", "", may_be_log=False, from_zero=True
)
LOCAL = _take_error(
    YAxis(
        "local_accuracy",
        "Accuracy of the averaged model and of the workers' own",
        "test_accuracy",
        "accuracy [%]",
        "%",
        100,
        "local_test_accuracy",
        "local_accuracy",
        may_be_log=False,
        legend=("averaged model", "own models"),
        note="own models: dashed line their mean, its band from the worst to the best",
        range=("local_test_accuracy_least", "local_test_accuracy_most"),
        needs_beside=True,
    ),
    "Error of the averaged model and of the workers' own",
)
CONSENSUS = YAxis(
    "consensus",
    "Consensus distance",
    "consensus_distance",
    "consensus distance",
    "",
    result="consensus_distance",
    is_local=True,
)


def plot_curves(layout: Layout, frame: pd.DataFrame, x: XAxis, y: YAxis) -> Plot | None:
    """Plot a measure against progress; return None if no run has the measure.

    Args:
        layout: the panels, one for each number of workers; as many are drawn as fit on a page.
        frame: `Report.epochs`, or `Report.profile`.
    """
    layout = (layout.drop_central() if y.is_local else layout).abridge()
    y = y.error if y.error and shows_error(layout.get_measured_runs()["accuracy"]) else y
    points = _scale_points(frame, x, y.column, y)
    if not layout.panels:
        return None
    runs = pd.concat([runs for _, runs in layout.panels])
    if not find_shown(runs, points).any() or (y.from_zero and not any(line[:, 1].any() for line in points.values())):
        return None
    beside = _scale_points(frame, x, y.beside, y) if y.beside else {}
    if y.needs_beside and not find_shown(runs, beside).any():
        return None
    around = [_scale_points(frame, x, side, y) for side in y.range or ()]
    is_log = y.is_log or (y.may_be_log and _spans_decades(runs, points, beside))
    drawn: list[dict[str, tuple[float, float, str]]] = []
    if layout.has_many:
        figure, blocks = layouts.make_small_multiples(layout, x.label, y.label)
        axes = [axis for block in blocks for axis in block.values()]
        for block, (_, runs) in zip(blocks, layout.panels, strict=True):
            lines, dashed = make_lines(runs, points, is_log), make_lines(runs, beside)
            bands = _make_bands(runs, around)
            others = {label: make_outline(members) for label, members in lines.items()}
            for label, axis in block.items():
                marks.draw_backdrop(axis, others)
                alone = layout.select_label(label)
                ends = _draw(axis, alone, {label: lines.get(label, [])}, {label: dashed.get(label, [])}, y.digits)
                _draw_bands(axis, alone, {label: bands.get(label, [])})
                _name_absent(axis, runs[runs["label"] == label], alone, points, x)
                number = "".join(text for _, _, text in ends.values())
                axis.set_title(number, loc="right", fontsize=SMALL, fontweight="normal")
                drawn.append({})
        explained = [
            *marks.make_backdrop_marks(layout),
            Line2D([], [], linestyle="none", label="number: where it ends"),
        ]
    else:
        blocks = []
        figure, axes = layouts.make_figure(layout, layout.columns, 2.1, x.share)
        for axis, (_, runs) in zip(axes, layout.panels, strict=True):
            drawn.append(_draw(axis, layout, make_lines(runs, points, is_log), make_lines(runs, beside), y.digits))
            _draw_bands(axis, layout, _make_bands(runs, around))
            _name_absent(axis, runs, layout, points, x)
        layouts.label_axes(axes, x.label, y.label, x.share)
        explained = marks.make_label_marks(layout.looks)
    least = find_least_loss(runs) if y.has_least else None
    if least is not None:
        for axis in axes:
            axis.axhline(least, color=GREY, linestyle=_LEAST, linewidth=1, zorder=1.3)
    _scale_axes(axes, layout, x, y, is_log)
    for axis, ends in zip(axes, drawn, strict=True) if is_log else ():
        _name_zeros(axis, ends, layout)
    layouts.draw_grid(blocks)
    if x.column in ("epoch", "step", "tokens"):  # only here do all lines end at the same place
        for axis, ends in zip(axes, drawn, strict=True):
            if len(ends) <= _MAX_LABELLED:
                marks.label_ends(axis, ends, layout)
    if beside:
        full, dashes = y.legend
        explained += [
            Line2D([], [], color=GREY, label=full),
            Line2D([], [], color=GREY, linestyle=_DASHES, linewidth=_THIN, label=dashes),
        ]
    if least is not None:
        label = f"least of any model: {format_number(least)}"
        explained.append(Line2D([], [], color=GREY, linestyle=_LEAST, linewidth=1, label=label))
    if any(line.get_marker() == _NOT_DONE for axis in axes for line in axis.lines):
        explained.append(Line2D([], [], color=GREY, marker=_NOT_DONE, linestyle="none", label="not done"))
    seeds = marks.describe_seeds(layout, "band", is_log=is_log)
    marks.draw_legend(figure, explained, seeds, _explain_many(layout), y.note, layout.omitted)
    title = f"{y.title} against {x.title}"
    if y.result:
        alt = marks.write_alt_text(f"{title}; at the end", layout, y.result, y.unit, y.scale, y.offset)
    else:
        alt = f"{title}, of {join_words(list(layout.looks))}."
    return Plot(f"{y.name}_{x.name}", title, alt, figure)


def _name_zeros(axis: Axes, ends: dict[str, tuple[float, float, str]], layout: Layout) -> None:
    """Write below the lines which of them end at zero, which a logarithmic axis cannot show."""
    zeros = [label for label, (_, y, _) in ends.items() if y <= 0]
    for label in zeros:
        del ends[label]
    text = ", ".join(escape_label(label, 24) for label in zeros)
    if text:
        axis.annotate(f"{text}: 0", (0.02, 0.02), xycoords="axes fraction", fontsize=SMALL, color=GREY)


def _scale_points(frame: pd.DataFrame, x: XAxis, column: str, y: YAxis) -> RunPoints:
    found = collect_points(frame, x.column, column)
    return {run: line * (1 / x.size, y.scale) + (0, y.offset) for run, line in found.items()}


def _draw(
    axis: Axes, layout: Layout, full: Mapping[str, Sequence[Line]], dashed: Mapping[str, Sequence[Line]], digits: int
) -> dict[str, tuple[float, float, str]]:
    """Draw the lines of all labels; return the texts at the ends of those lines that alone have their colour."""
    ends: dict[str, tuple[float, float, str]] = {}
    light = 0.2 if len(layout.looks) <= _MAX_BANDS else 0.1  # opacity of bands, which overlap where they are many
    for label, lines in full.items():
        look, is_alone = layout.looks[label], len(lines) == 1
        width = 1.5 if is_alone else _THIN
        axis.add_collection(
            LineCollection(
                [line.points for line in lines], colors=look.colour, linewidths=width, capstyle="round", zorder=2
            )
        )
        for line in lines:
            if line.low is not None and line.high is not None and len(lines) <= _MAX_BANDS:
                axis.fill_between(line.x, line.low, line.high, color=look.colour, alpha=light, linewidth=0, zorder=1.5)
        for is_done, marker in ((True, look.marker), (False, _NOT_DONE)):
            tips = [line.points[-1] for line in lines if line.is_done == is_done]
            if tips:
                axis.plot(*zip(*tips, strict=True), marker, color=look.colour)
        if is_alone and lines[0].is_done:
            ends[label] = (lines[0].x[-1], lines[0].y[-1], format_number(lines[0].y[-1], digits))
    for label, lines in dashed.items():
        segments = [line.points for line in lines]
        colour = layout.looks[label].colour
        axis.add_collection(
            LineCollection(segments, colors=colour, linewidths=_THIN, linestyles=[_DASHES], alpha=0.7, zorder=1.8)
        )
    axis.autoscale_view()
    return ends


Band = tuple[np.ndarray, np.ndarray, np.ndarray]
"""x, low and high, (points,) each."""


def _make_bands(runs: pd.DataFrame, sides: Sequence[RunPoints]) -> dict[str, list[Band]]:
    """Return for each label the lower and upper curve of its band: the means over the seeds of the two `sides`.

    Without `sides` there are no bands."""
    if not sides:
        return {}
    low, high = (make_lines(runs, side) for side in sides)
    return {
        label: [
            (below.x, below.y, above.y)
            for below, above in zip(lines, high[label], strict=True)
            if len(below.x) == len(above.x)
        ]
        for label, lines in low.items()
    }


def _draw_bands(axis: Axes, layout: Layout, bands: Mapping[str, Sequence[Band]]) -> None:
    """Draw the bands, except those of labels with so many that they would hide each other."""
    for label, found in bands.items():
        for x, low, high in found if len(found) <= _MAX_BANDS else ():
            axis.fill_between(x, low, high, color=layout.looks[label].colour, alpha=0.12, linewidth=0, zorder=1.4)


def _name_absent(axis: Axes, runs: pd.DataFrame, layout: Layout, points: RunPoints, x: XAxis) -> None:
    """Write on the panel why some runs have no line."""
    shown = find_shown(runs, points)
    if shown.all() and runs["label"].nunique() == len(layout.looks):
        return
    stands = ~shown & np.array([run in points for run in name_runs(runs)], bool)
    words = marks.choose_words(runs, shown).mask(stands, x.nothing)
    marks.name_absent(axis, runs, words, layout)


def _spans_decades(runs: pd.DataFrame, *measures: RunPoints) -> bool:
    names = set(name_runs(runs))
    values = [line[line[:, 1] > 0, 1] for points in measures for run, line in points.items() if run in names]
    ends = [(each.min(), each.max()) for each in values if len(each)]
    return bool(ends) and max(high for _, high in ends) > WIDE * min(low for low, _ in ends)


def _scale_axes(axes: Sequence[Axes], layout: Layout, x: XAxis, y: YAxis, is_log: bool) -> None:
    """Set scales, ticks and limits; `is_log` says whether y is logarithmic, x is if its values span decades."""
    is_wide = max(axis.dataLim.x1 for axis in axes) > WIDE * min(axis.dataLim.minposx for axis in axes)
    if is_log:
        values = np.concatenate([_list_positive(axis) for axis in axes])
        bottom, top = values.min(initial=np.inf), values.max(initial=0.0)
        if top > 0:  # bands of few seeds are wide: they may leave the axes
            bottom = max(bottom / _MOST_BESIDE, min(bottom, *(axis.dataLim.minposy for axis in axes)) / 1.2)
            top = min(top * _MOST_BESIDE, max(top, *(axis.dataLim.y1 for axis in axes)) * 1.2, y.most * 1.2)
        for axis in axes:
            axis.set_yscale("log")
            if top > 0:
                axis.set_ylim(bottom, top)
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if top < 100 * bottom else (1,)))
            axis.yaxis.set_major_formatter(layouts.PLAIN)
            axis.yaxis.set_minor_locator(NullLocator())  # the default draws none, but takes time
    for axis in axes:
        if x.column == "sent_bytes":
            axis.set_xscale("log" if is_wide else "linear")
            axis.xaxis.set_major_formatter(layouts.PLAIN)
            axis.xaxis.set_minor_formatter(NullFormatter())
            if is_wide:
                layouts.label_more_ticks(axis)
            if layout.has_many:
                axis.xaxis.set_minor_locator(NullLocator())
        elif x.column == "time_s":
            axis.set_xlim(left=0)
        else:
            axis.xaxis.set_major_locator(MaxNLocator(4 if layout.has_many else 7, steps=[1, 2, 5, 10], integer=True))
        if y.from_zero:
            axis.set_ylim(bottom=0)
    if layout.has_many:
        layouts.share_limits(axes, x.share)


def _list_positive(axis: Axes) -> np.ndarray:
    """Return the positive y of the lines in these axes, (points,)."""
    lines = (
        line for artist in axis.collections if isinstance(artist, LineCollection) for line in artist.get_segments()
    )
    return np.concatenate([np.empty(0), *(line[line[:, 1] > 0, 1] for line in lines if len(line))])


def _explain_many(layout: Layout) -> str:
    """Return the note of a legend that explains why several lines share a colour."""
    cells = max(runs.groupby("label")["cell"].nunique().max() for _, runs in layout.panels)
    keys = join_words([layouts.escape_label(key) for key in layout.repeats])
    return f"line: median, band: middle 80 % over {keys}" if cells > MAX_LINES else marks.describe_repeats(layout)
