"""Draw the pictures of `python -m reports scaling`.

Measured values are filled and solid, predicted ones hollow, dashed and hatched.
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
from matplotlib.ticker import FuncFormatter

from gradsweep.options.units import format_bandwidth, seconds, spell_quantities
from reports.plots import style
from reports.plots.layout import COLUMN, GREY, LEGEND, TEXT, escape_label
from reports.plots.marks import draw_legend, make_label_marks
from reports.plots.picture import Maker, Plot
from reports.reading.text import format_number, join_words
from reports.scaling.measured.links import PAYLOAD_SHARE, Links, is_same_latency
from reports.scaling.model.break_even import FASTEST_BIT_S, SLOWEST_BIT_S, BreakEven, WinMap
from reports.scaling.model.cross_validation import CrossValidation
from reports.scaling.model.predict import Prediction
from reports.scaling.output import lines, speedup_picture
from reports.scaling.output.fit_tables import summarize_check
from reports.scaling.output.speedup import Speedup
from reports.scaling.output.tables import CLOSE, NO_INTERVAL, format_ranges

_ACROSS, _TITLE = 3, 30  # panels side by side, and characters of their names' lines
_HATCH = "////"
_SOLID, _FAINT = 0.75, 0.2  # opacity of the map where the fastest method is certain, and where it is not


def _make_name(name: str, workload: str) -> str:
    """Return the file name of a picture, which names its workload."""
    words = "".join(char if char.isalnum() else "-" for char in workload)
    return f"{name}-{words}" if workload else name


def _make_title(title: str, workload: str) -> str:
    return f"{title}, {workload}" if workload else title


def _frame_bandwidths(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.set_ylim(SLOWEST_BIT_S, FASTEST_BIT_S)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: spell_quantities(format_bandwidth(value))))
    axis.set_ylabel("bandwidth")


def plot_efficiency(workload: str, predictions: Sequence[Prediction]) -> Plot:
    """Plot efficiency by workers: a panel for each network, a line for each method, with intervals if there are few
    lines.
    """
    found = [one for one in predictions if one.workload == workload]
    networks = list(dict.fromkeys(one.network for one in found))
    looks = style.choose_looks(list(dict.fromkeys(one.method for one in found)))
    rows = math.ceil(len(networks) / _ACROSS)
    figure = Figure(figsize=(TEXT, LEGEND + 2.2 * rows))
    axes = list(figure.subplots(rows, min(_ACROSS, len(networks)), squeeze=False, sharey=True).flat)
    for unused in axes[len(networks) :]:
        unused.remove()
    for place, (axis, network) in enumerate(zip(axes, networks, strict=False)):
        for method, look in looks.items():
            line = [_make_point(one) for one in found if (one.network, one.method) == (network, method)]
            lines.draw_line(axis, line, look, has_band=len(looks) <= lines.MOST_BANDS)
        lines.write_title(axis, network, _TITLE)
        lines.frame_workers(axis, sorted({one.workers for one in found}))
        axis.set(xlabel="workers", ylabel="efficiency [%]" if place % _ACROSS == 0 else "", ylim=(0, 105))
    kinds = lines.make_kind_marks(one.is_measured for one in found)
    draw_legend(figure, [*make_label_marks(looks), *kinds], lines.explain_bands(len(looks)))
    most = max(one.workers for one in found)
    last = [
        f"{spell_quantities(one.network)}, {one.method}: {format_number(100 * one.efficiency, 2)} %"
        for one in found
        if one.workers == most
    ]
    alt = f"Predicted scaling efficiency by workers and network; with {most} workers: {'; '.join(last[:24])}."
    title = _make_title("Predicted scaling efficiency", workload)
    return Plot(_make_name("scaling_efficiency", workload), title, alt, figure)


def _make_point(one: Prediction) -> lines.Point:
    value, low, high = (100 * one.alone / time for time in (one.step.total, one.high, one.low))
    return one.workers, value, low, high, one.is_measured


MapPoint = tuple[int, float]
"""Workers, and bit/s as links are sold."""


def find_measured_points(
    predictions: Sequence[Prediction], links: Sequence[Links], one_way: float
) -> dict[str, set[MapPoint]]:
    """Return by workload the positions of measured steps on a win map that assumes this one-way latency."""
    there = {
        one.name: one.bandwidth / PAYLOAD_SHARE for one in links if is_same_latency(one.alpha, one_way) and one.beta
    }
    found: dict[str, set[MapPoint]] = {}
    for one in predictions:
        if one.is_measured and one.network in there:
            found.setdefault(one.workload, set()).add((one.workers, there[one.network]))
    return found


def plot_win_map(workload: str, found: WinMap, dots: set[MapPoint], links: Sequence[Links], latency: str) -> Plot:
    """Plot the method predicted to be fastest by bandwidth and workers, with dots at measurements and lines at
    networks.
    """
    figure = Figure(figsize=(TEXT, LEGEND + 3.0))
    axis = figure.subplots()
    winner = found.winner
    methods = [found.methods[place] for place in sorted(set(winner.flat))]
    looks = style.choose_looks(list(found.methods))
    colours = ListedColormap([looks[method].colour for method in found.methods])
    half = (found.bandwidths[1] / found.bandwidths[0]) ** 0.5
    edges = np.append(found.bandwidths / half, found.bandwidths[-1] * half)
    columns = np.arange(len(found.workers) + 1) - 0.5
    opacity = np.where(found.is_close | found.has_no_interval, _FAINT, _SOLID)
    axis.pcolormesh(columns, edges, winner, cmap=colours, vmin=-0.5, vmax=len(found.methods) - 0.5, alpha=opacity)  # type: ignore[arg-type]
    _hatch(axis, columns, edges)
    if dots:
        x, y = zip(*sorted(dots), strict=True)
        axis.plot([found.workers.index(count) for count in x], y, "o", color="black", markersize=4, zorder=3)
    for one in links:
        if one.beta:
            axis.axhline(one.bandwidth / PAYLOAD_SHARE, color="white", linewidth=0.8, linestyle=lines.DASHES)
    axis.set_xticks(range(len(found.workers)), [str(count) for count in found.workers])
    _frame_bandwidths(axis)
    axis.set(xlabel="workers", xlim=(columns[0], columns[-1]))
    axis.grid(visible=False)
    marks: list[Line2D | Patch] = [
        Patch(facecolor=looks[method].colour, alpha=_SOLID, label=escape_label(method)) for method in methods
    ]
    pale = _describe_pale(bool(found.is_close.any()), bool(found.has_no_interval.any()))
    marks += [Patch(facecolor=GREY, alpha=_FAINT, label=pale)] if pale else []
    marks += [Patch(facecolor="white", edgecolor=GREY, hatch=_HATCH, label="predicted")]
    marks += [Line2D([], [], color="black", marker="o", linestyle="none", label="runs there")] if dots else []
    if any(one.beta for one in links):
        marks.append(Line2D([], [], color=GREY, linewidth=0.8, linestyle=lines.DASHES, label="networks of the tables"))
    draw_legend(figure, marks, f"the fastest compressor, {spell_quantities(latency)} one way")
    title = _make_title("Which compressor is predicted to be fastest, by bandwidth and workers", workload)
    return Plot(_make_name("scaling_map", workload), title, f"{title}: {_describe_winners(found)}.", figure)


def _hatch(axis: Axes, columns: np.ndarray, edges: np.ndarray) -> None:
    """Hatch the whole map as predicted: even at a measured position, only a prediction says which method is fastest."""
    size = columns[-1] - columns[0], edges[-1] - edges[0]
    box = Rectangle((columns[0], edges[0]), *size, fill=False, hatch=_HATCH, linewidth=0)
    box.set_edgecolor("#FFFFFF90")
    axis.add_patch(box)


def _describe_winners(found: WinMap) -> str:
    """Return the fastest methods at a few bandwidths, in words."""
    winner, said = found.winner, []
    for rate in (1e8, 1e9, 1e10, 1e11):
        row = int(np.abs(np.log(found.bandwidths / rate)).argmin())
        names = []
        for column in (0, len(found.workers) - 1):
            unsure = CLOSE * bool(found.is_close[row, column]) or NO_INTERVAL * bool(found.has_no_interval[row, column])
            names.append(f"{unsure or found.methods[winner[row, column]]} with {found.workers[column]}")
        said.append(f"at {spell_quantities(format_bandwidth(rate))} {join_words(names)} workers")
    return "; ".join(said)


def _describe_pale(is_close: bool, has_no_interval: bool) -> str:
    """Return the legend's words on pale marks; empty if there are none."""
    words = [word for word, is_there in ((CLOSE, is_close), (NO_INTERVAL, has_no_interval)) if is_there]
    return f"pale: {' or '.join(words)}" if words else ""


def plot_break_even(workload: str, found: Sequence[BreakEven], latency: str) -> Plot | None:
    """Plot the bandwidths at which each method beats the baseline, as bars by workers; None if no method does."""
    found = [one for one in found if one.workload == workload]
    if not any(one.wins or one.close or one.unknown for one in found):
        return None
    methods, counts = (list(dict.fromkeys(getattr(one, name) for one in found)) for name in ("method", "workers"))
    figure = Figure(figsize=(TEXT, LEGEND + 2.6))
    axis = figure.subplots()
    looks = style.choose_looks(methods)
    for one in found:
        look = looks[one.method]
        x = counts.index(one.workers) + 0.8 * ((methods.index(one.method) + 0.5) / len(methods) - 0.5)
        for low, high in (*one.close, *one.unknown):
            ends = np.clip([low, high], SLOWEST_BIT_S, FASTEST_BIT_S)
            axis.plot([x, x], ends, color=look.colour, linewidth=1.5, alpha=_FAINT)
        for low, high in one.wins:
            ends = np.clip([low, high], SLOWEST_BIT_S, FASTEST_BIT_S)
            axis.plot([x, x], ends, color=look.colour, linewidth=1.5, linestyle=lines.DASHES)
            inner = [end for end in (low, high) if 0 < end < math.inf]
            marks = {"linestyle": "none", "marker": look.marker, "markersize": 3.5, "markerfacecolor": "white"}
            axis.plot([x] * len(inner), inner, color=look.colour, **marks)  # type: ignore[arg-type]
    for place in range(1, len(counts)):
        axis.axvline(place - 0.5, color=style.BACKDROP, linewidth=0.8)
    axis.set_xticks(range(len(counts)), [str(count) for count in counts])
    axis.set(xlabel="workers", xlim=(-0.5, len(counts) - 0.5))
    axis.grid(visible=False, axis="x")
    _frame_bandwidths(axis)
    words = _describe_pale(any(one.close for one in found), any(one.unknown for one in found))
    pale = [Line2D([], [], color=GREY, alpha=_FAINT, label=words)] if words else []
    draw_legend(
        figure,
        [*make_label_marks(looks), lines.PREDICTED, *pale],
        f"where a compressor pays, {spell_quantities(latency)} one way",
    )
    title = _make_title("Bandwidths at which a compressor pays", workload)
    wins: dict[str, list[str]] = {}
    for one in found:
        if one.wins or one.close or one.unknown:
            wins.setdefault(one.method, []).append(f"{spell_quantities(format_ranges(one))} with {one.workers}")
    told = "; ".join(f"{method}: {', '.join(texts)}" for method, texts in wins.items())
    return Plot(_make_name("scaling_break_even", workload), title, f"{title} by workers. {told}.", figure)


def plot_check(check: CrossValidation) -> Plot:
    """Plot the measured step of each cell against its prediction by the cost model without this cell."""
    figure = Figure(figsize=(COLUMN, LEGEND + 3.0))
    axis = figure.subplots()
    looks = style.choose_looks(list(dict.fromkeys(one.cell.method for one in check.held)))
    values = [value for one in check.held for value in (one.cell.step_s, float(one.predicted.total))]
    ends = np.array([min(values) / 1.5, max(values) * 1.5]) * 1e3
    axis.fill_between(ends, ends * 0.75, ends * 1.25, color=style.BACKDROP, alpha=0.5, linewidth=0)
    axis.fill_between(ends, ends * 0.9, ends * 1.1, color=style.BACKDROP, linewidth=0)
    axis.plot(ends, ends, color=GREY, linewidth=0.8)
    for method, look in looks.items():
        held = [one for one in check.held if one.cell.method == method]
        x, y = [1e3 * one.cell.step_s for one in held], [1e3 * float(one.predicted.total) for one in held]
        axis.plot(x, y, look.marker, color=look.colour, markersize=4, markerfacecolor="white")
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured [ms]", ylabel="predicted [ms]")
    for side in (axis.xaxis, axis.yaxis):
        lines.format_ticks(side, (1, 3))
    marks = [Patch(facecolor=style.BACKDROP, label="±10 %"), Patch(facecolor=style.BACKDROP, alpha=0.5, label="±25 %")]
    draw_legend(figure, [*make_label_marks(looks), *marks])
    return Plot(
        "scaling_check", "Step time: measured, and predicted without", "; ".join(summarize_check(check)) + ".", figure
    )


def list_makers(
    check: CrossValidation,
    predictions: Sequence[Prediction],
    maps: Mapping[str, WinMap],
    evens: Sequence[BreakEven],
    times: Sequence[Speedup],
    links: Sequence[Links],
    latency: str,
) -> dict[str, Maker]:
    """Return the functions that make the pictures, by name; `latency` is the one-way latency of the maps."""
    make = functools.partial
    found: dict[str, Maker] = {
        "scaling_check": make(plot_check, check),
        "scaling_speedup": make(speedup_picture.plot_speedups, times, check),
    }
    dots = find_measured_points(predictions, links, seconds(latency) or 0.0)
    for workload, one in maps.items():
        found[_make_name("scaling_efficiency", workload)] = make(plot_efficiency, workload, predictions)
        found[_make_name("scaling_map", workload)] = make(
            plot_win_map, workload, one, dots.get(workload, set()), links, latency
        )
        found[_make_name("scaling_break_even", workload)] = make(plot_break_even, workload, evens, latency)
    return found
