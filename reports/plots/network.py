"""Plot a probe of a network: times of collectives against bytes, and the lines fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator

from gradsweep.options import units
from reports.plots import style
from reports.plots.layout import GREY, SMALL, TEXT
from reports.plots.picture import Plot
from reports.tables.probe_tables import COLLECTIVES, format_size, format_title

_COLOURS = dict(zip(COLLECTIVES, (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE), strict=True))
_DECADES = [10.0**power for power in range(1, 9)]  # bytes
_NAMES = ["", "100 B", "", "10 kB", "", "1 MB", "", "100 MB"]  # every other one: all have no room
_SAMPLES = 60  # of a line, which is curved in logarithmic axes


def plot_probe(probe: Mapping[str, Any]) -> Plot:
    """Plot the times of collectives in four panels with the same axes: points with quartiles, fitted lines, and
    switch points."""
    with matplotlib.rc_context(fname=style.STYLE):
        figure = Figure(figsize=(TEXT, 4.9))
        panels = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        for axes, name in zip(panels, COLLECTIVES, strict=True):
            _draw_panel(axes, name, probe["collectives"].get(name) or {"points": [], "fits": [], "switch_points": []})
        for axes in panels[2:]:
            axes.set_xlabel("bytes")
        for axes in panels[::2]:
            axes.set_ylabel("time")
        marks = [
            Line2D([], [], color=GREY, marker="o", linestyle="none", label="median, with quartiles"),
            Line2D([], [], color=GREY, label="alpha + beta x bytes"),
            Line2D([], [], color=GREY, linestyle=":", label="the next line begins"),
        ]
        box = figure.legend(
            handles=marks, loc="outside upper left", ncols=3, title=format_title(probe), title_fontsize=9
        )
        box.set_alignment("left")
    alt = "; ".join(_describe_collective(name, probe["collectives"].get(name) or {}) for name in COLLECTIVES)
    return Plot("network", format_title(probe), f"Time of collectives against bytes. {alt}.", figure)


def _draw_panel(axes: Axes, name: str, found: Mapping[str, Any]) -> None:
    colour = _COLOURS[name]
    axes.set(xscale="log", yscale="log")
    size, middle, low, high = (
        np.array([float(point[key]) for point in found["points"]]) for key in ("bytes", "time_s", "low_s", "high_s")
    )
    if len(size):
        bars = np.stack([middle - low, high - middle]).clip(min=0)
        axes.errorbar(size, middle, bars, fmt="o", markersize=3, color=colour, elinewidth=0.8, zorder=3)
    for fit in found["fits"]:
        x = np.geomspace(fit["from_bytes"], fit["to_bytes"], _SAMPLES)
        axes.plot(x, fit["alpha_s"] + fit["beta_s_per_byte"] * x, color=colour, linewidth=1.2, zorder=2)
    for number, switch in enumerate(found["switch_points"]):
        axes.axvline(switch, color=GREY, linestyle=":", linewidth=0.9, zorder=1)
        axes.annotate(
            format_size(switch),
            (switch, 1),
            (2, -3 - 8 * (number % 2)),  # neighbours in two rows
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            va="top",
            fontsize=SMALL,
            color=GREY,
        )
    chosen = {fit["algorithm"] for fit in found["fits"]} - {None}
    axes.set_title(f"{name} ({', '.join(sorted(chosen))})" if chosen else name, color=colour)
    axes.xaxis.set_major_locator(FixedLocator(_DECADES))
    axes.xaxis.set_major_formatter(FixedFormatter(_NAMES))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.spell_quantities(units.format_time(value))))


def _describe_collective(name: str, found: Mapping[str, Any]) -> str:
    points = found.get("points") or []
    if not points:
        return f"{name}: not measured"
    first, last = points[0], points[-1]
    switches = [format_size(switch) for switch in found.get("switch_points") or []]
    behaves = f", other lines from {' and '.join(switches)} on" if switches else ""
    return units.spell_quantities(
        f"{name}: {units.format_time(first['time_s'])} for {format_size(first['bytes'])}, "
        f"{units.format_time(last['time_s'])} for {format_size(last['bytes'])}{behaves}"
    )
