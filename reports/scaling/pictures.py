"""The pictures of `python -m reports scaling`.

What was measured is filled and solid, what is extrapolated hollow, dashed and hatched.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator

from reports import style
from reports.plots.layout import COLUMN, GREY, LEGEND, TEXT, plain
from reports.plots.marks import legend
from reports.plots.picture import Maker, Plot
from reports.scaling.answers import FASTEST_BIT_S, SLOWEST_BIT_S, BreakEven, Map
from reports.scaling.check import Check
from reports.scaling.check_tables import summary
from reports.scaling.networks import PAYLOAD_SHARE, Links
from reports.scaling.parts import Cell
from reports.scaling.predict import Prediction
from reports.text import listed, number
from sweep.units import shown_bandwidth

_DASHES = (0, (4, 2))
_ACROSS = 3  # panels side by side
_HATCH = "////"
_EXTRAPOLATED = Line2D([], [], color=GREY, linestyle=_DASHES, marker="o", markerfacecolor="white", label="extrapolated")
_MEASURED = Line2D([], [], color=GREY, marker="o", label="measured")


def _name(name: str, workload: str) -> str:
    """Of a file; each workload has its own."""
    words = "".join(char if char.isalnum() else "-" for char in workload)
    return f"{name}-{words}" if workload else name


def _titled(title: str, workload: str) -> str:
    return f"{title}, {workload}" if workload else title


def _frame(axis: Axes, counts: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    step = math.ceil(len(counts) / 6)
    shown = [count for place, count in enumerate(reversed(counts)) if place % step == 0]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_major_formatter(FixedFormatter([str(count) for count in shown]))
    axis.xaxis.set_minor_locator(NullLocator())


def _bandwidths(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.set_ylim(SLOWEST_BIT_S, FASTEST_BIT_S)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_bandwidth(value).replace("bit", "bit/s")))
    axis.set_ylabel("bandwidth")


def _looks(methods: Sequence[str]) -> Mapping[str, style.Look]:
    return style.looks(methods)


def _label_marks(methods: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], color=look.colour, marker=look.marker, label=plain(label))
        for label, look in _looks(methods).items()
    ]


def efficiency(workload: str, predictions: Sequence[Prediction]) -> Plot:
    """A panel for each network: efficiency by workers, a line for each method; of a few with their intervals."""
    found = [one for one in predictions if one.workload == workload]
    networks = list(dict.fromkeys(one.network for one in found))
    methods = list(dict.fromkeys(one.method for one in found))
    rows = math.ceil(len(networks) / _ACROSS)
    figure = Figure(figsize=(TEXT, LEGEND + 2.2 * rows))
    axes = list(figure.subplots(rows, min(_ACROSS, len(networks)), squeeze=False, sharey=True).flat)
    for unused in axes[len(networks) :]:
        unused.remove()
    for place, (axis, network) in enumerate(zip(axes, networks, strict=False)):
        for method, look in _looks(methods).items():
            line = [one for one in found if (one.network, one.method) == (network, method)]
            _line(axis, line, look, has_band=len(methods) <= 6)
        axis.set_title(plain(network))
        _frame(axis, sorted({one.workers for one in found}))
        axis.set(xlabel="workers", ylabel="efficiency [%]" if place % _ACROSS == 0 else "", ylim=(0, 105))
    kinds = {one.is_measured for one in found}
    shown = [mark for mark, kind in ((_MEASURED, True), (_EXTRAPOLATED, False)) if kind in kinds]
    legend(figure, [*_label_marks(methods), *shown])
    most = max(one.workers for one in found)
    last = [f"{one.network}, {one.method}: {number(100 * one.efficiency, 2)} %" for one in found if one.workers == most]
    alt = f"Predicted scaling efficiency by workers and network; with {most} workers: {'; '.join(last[:24])}."
    title = _titled("Predicted scaling efficiency", workload)
    return Plot(_name("scaling_efficiency", workload), title, alt, figure)


def _line(axis: Axes, line: Sequence[Prediction], look: style.Look, has_band: bool) -> None:
    x, y = [one.workers for one in line], [100 * one.efficiency for one in line]
    axis.plot(x, y, color=look.colour, linestyle=_DASHES, linewidth=1.0)
    hollow = [place for place, one in enumerate(line) if not one.is_measured]
    solid = [place for place, one in enumerate(line) if one.is_measured]
    marks = {"linestyle": "none", "marker": look.marker, "color": look.colour, "markersize": 3.5}
    axis.plot([x[place] for place in hollow], [y[place] for place in hollow], markerfacecolor="white", **marks)  # type: ignore[arg-type]
    axis.plot([x[place] for place in solid], [y[place] for place in solid], **marks)  # type: ignore[arg-type]
    axis.plot([x[place] for place in solid], [y[place] for place in solid], color=look.colour)
    if has_band:
        low, high = ([100 * one.alone / getattr(one, end) for one in line] for end in ("high", "low"))
        axis.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)


def win_map(workload: str, found: Map, cells: Sequence[Cell], nominal: Sequence[Links], latency: str) -> Plot:
    """Who is fastest by bandwidth and workers; hatched outside of what was measured, whose cells are dots."""
    figure = Figure(figsize=(TEXT, LEGEND + 3.0))
    axis = figure.subplots()
    winner = found.winner
    methods = [found.methods[place] for place in sorted(set(winner.flat))]
    looks = _looks(list(found.methods))
    colours = ListedColormap([looks[method].colour for method in found.methods])
    half = (found.bandwidths[1] / found.bandwidths[0]) ** 0.5
    edges = np.append(found.bandwidths / half, found.bandwidths[-1] * half)
    columns = np.arange(len(found.workers) + 1) - 0.5
    axis.pcolormesh(columns, edges, winner, cmap=colours, vmin=-0.5, vmax=len(found.methods) - 0.5, alpha=0.75)
    places = {count: place for place, count in enumerate(found.workers)}
    dots = {
        (places[cell.workers], 8 / cell.links.beta / PAYLOAD_SHARE)
        for cell in cells
        if cell.links.beta and cell.workers in places
    }
    _hatch(axis, dots, columns, edges)
    if dots:
        axis.plot(*zip(*sorted(dots), strict=True), "o", color="black", markersize=4)
    for links in nominal:
        axis.axhline(links.bandwidth / PAYLOAD_SHARE, color="white", linewidth=0.8, linestyle=_DASHES)
    axis.set_xticks(range(len(found.workers)), [str(count) for count in found.workers])
    _bandwidths(axis)
    axis.set(xlabel="workers", xlim=(columns[0], columns[-1]))
    axis.grid(visible=False)
    marks: list[Line2D | Patch] = [
        Patch(facecolor=looks[method].colour, alpha=0.75, label=plain(method)) for method in methods
    ]
    marks += [Patch(facecolor="white", edgecolor=GREY, hatch=_HATCH, label="extrapolated")]
    marks += [Line2D([], [], color="black", marker="o", linestyle="none", label="measured")] if dots else []
    legend(figure, marks, f"the fastest compressor, {latency} one way")
    title = _titled("Which compressor is fastest, by bandwidth and workers", workload)
    return Plot(_name("scaling_map", workload), title, f"{title}: {_told(found)}.", figure)


def _hatch(axis: Axes, dots: set[tuple[int, float]], columns: np.ndarray, edges: np.ndarray) -> None:
    """All but the box around what was measured."""
    left, right, bottom, top = columns[0], columns[-1], edges[0], edges[-1]
    boxes = [(left, bottom, right, top)]
    if dots:
        x0, x1 = min(x for x, _ in dots) - 0.5, max(x for x, _ in dots) + 0.5
        y0, y1 = min(y for _, y in dots) / 1.2, max(y for _, y in dots) * 1.2
        boxes = [(left, bottom, x0, top), (x1, bottom, right, top), (x0, bottom, x1, y0), (x0, y1, x1, top)]
    for low, below, high, above in boxes:
        if high > low and above > below:
            box = Rectangle((low, below), high - low, above - below, fill=False, hatch=_HATCH, linewidth=0)
            box.set_edgecolor("#FFFFFF90")
            axis.add_patch(box)


def _told(found: Map) -> str:
    """Who wins at a few places."""
    winner, said = found.winner, []
    for rate in (1e8, 1e9, 1e10, 1e11):
        row = int(np.abs(np.log(found.bandwidths / rate)).argmin())
        names = [
            f"{found.methods[winner[row, column]]} with {found.workers[column]}"
            for column in (0, len(found.workers) - 1)
        ]
        said.append(f"at {shown_bandwidth(rate)} {listed(names)} workers")
    return "; ".join(said)


def break_even(workload: str, found: Sequence[BreakEven], latency: str) -> Plot | None:
    """By workers, the bandwidth below which each method beats the baseline; nothing where none ever does."""
    lines = {
        method: [(one.workers, one.bandwidth) for one in found if one.method == method]
        for method in dict.fromkeys(one.method for one in found)
    }
    if not any(0 < one.bandwidth < math.inf for one in found):
        return None
    figure = Figure(figsize=(TEXT, LEGEND + 2.6))
    axis = figure.subplots()
    for method, look in _looks(list(lines)).items():
        x, y = zip(*lines[method], strict=True)
        marks = {"marker": look.marker, "markerfacecolor": "white", "linestyle": _DASHES, "linewidth": 1.0}
        axis.plot(x, np.clip(y, SLOWEST_BIT_S, FASTEST_BIT_S), color=look.colour, clip_on=False, **marks)  # type: ignore[arg-type]
    _frame(axis, sorted({one.workers for one in found}))
    _bandwidths(axis)
    axis.set_xlabel("workers")
    note = f"below it a compressor pays, {latency} one way; at the top: always, at the bottom: never"
    legend(figure, [*_label_marks(list(lines)), _EXTRAPOLATED], note)
    title = _titled("Break-even bandwidth", workload)
    told = "; ".join(
        f"{method}: "
        + ", ".join(
            f"{shown_bandwidth(float(f'{rate:.2g}'))} with {count}" for count, rate in line if 0 < rate < math.inf
        )
        for method, line in lines.items()
    )
    return Plot(_name("scaling_break_even", workload), title, f"{title} by workers. {told}.", figure)


def checked(check: Check) -> Plot:
    """What each cell took against what the model without it says."""
    figure = Figure(figsize=(COLUMN, LEGEND + 3.0))
    axis = figure.subplots()
    methods = list(dict.fromkeys(one.cell.method for one in check.held))
    values = [value for one in check.held for value in (one.cell.step_s, float(one.predicted.total))]
    ends = np.array([min(values) / 1.5, max(values) * 1.5]) * 1e3
    axis.fill_between(ends, ends * 0.75, ends * 1.25, color=style.BACKDROP, alpha=0.5, linewidth=0)
    axis.fill_between(ends, ends * 0.9, ends * 1.1, color=style.BACKDROP, linewidth=0)
    axis.plot(ends, ends, color=GREY, linewidth=0.8)
    for method, look in _looks(methods).items():
        held = [one for one in check.held if one.cell.method == method]
        x, y = [1e3 * one.cell.step_s for one in held], [1e3 * float(one.predicted.total) for one in held]
        axis.plot(x, y, look.marker, color=look.colour, markersize=4, markerfacecolor="white")
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured [ms]", ylabel="predicted [ms]")
    marks = [Patch(facecolor=style.BACKDROP, label="±10 %"), Patch(facecolor=style.BACKDROP, alpha=0.5, label="±25 %")]
    legend(figure, [*_label_marks(methods), *marks])
    return Plot("scaling_check", "Step time: measured, and predicted without", "; ".join(summary(check)) + ".", figure)


def makers(
    check: Check,
    predictions: Sequence[Prediction],
    cells: Sequence[Cell],
    maps: Mapping[str, Map],
    evens: Mapping[str, Sequence[BreakEven]],
    nominal: Sequence[Links],
    latency: str,
) -> dict[str, Maker]:
    """What makes the pictures, by their names."""
    make = functools.partial
    found: dict[str, Maker] = {"scaling_check": make(checked, check)}
    for workload, one in maps.items():
        of = [cell for cell in cells if cell.workload == workload]
        found[_name("scaling_efficiency", workload)] = make(efficiency, workload, predictions)
        found[_name("scaling_map", workload)] = make(win_map, workload, one, of, nominal, latency)
        found[_name("scaling_break_even", workload)] = make(break_even, workload, evens[workload], latency)
    return found
