"""Draw lines by workers: measured points are filled and solid, predicted ones hollow and dashed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from gradsweep.options.units import spell_quantities
from reports.plots import style
from reports.plots.layout import GREY, escape_label
from reports.reading.text import format_percent
from reports.scaling.model.predict import LEVEL

DASHES = (0, (4, 2))
PREDICTED = Line2D([], [], color=GREY, linestyle=DASHES, marker="o", markerfacecolor="white", label="predicted")
_MEASURED = Line2D([], [], color=GREY, marker="o", label="measured")
MOST_BANDS = 6
"""The most lines whose intervals can be told apart."""

Point = tuple[int, float, float, float, bool]
"""Workers, the value, its interval, and whether it was measured, which has none."""


def draw_line(axis: Axes, line: Sequence[Point], look: style.Look, has_band: bool) -> None:
    x, y, low, high, measured = map(np.array, zip(*line, strict=True))
    axis.plot(x, y, color=look.colour, linestyle=DASHES, linewidth=1.0)
    for here, face in ((~measured, "white"), (measured, look.colour)):
        axis.plot(x[here], y[here], look.marker, color=look.colour, markersize=3.5, markerfacecolor=face)
    # Solid between two measured neighbours.
    axis.plot(x, np.where(measured, y, np.nan), color=look.colour)
    if has_band:
        low, high = (np.where(measured, y, end) for end in (low, high))
        axis.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)


def explain_bands(methods: int) -> str:
    """Return the legend's note on the bands of lines of so many methods; empty if they have none."""
    return f"band: {format_percent(LEVEL)} interval of the prediction" if methods <= MOST_BANDS else ""


def frame_workers(axis: Axes, counts: Sequence[int]) -> None:
    """Set up the x axis of numbers of workers."""
    axis.set_xscale("log", base=2)
    step = math.ceil(len(counts) / 6)
    shown = [count for place, count in enumerate(reversed(counts)) if place % step == 0]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_major_formatter(FixedFormatter([str(count) for count in shown]))
    axis.xaxis.set_minor_locator(NullLocator())


def format_ticks(axis: Axis, subs: Sequence[float] = (1, 2, 5)) -> None:
    """Label ticks of each power of ten on a logarithmic axis with plain numbers: 1, 2 and 5, or `subs`."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axis.set_minor_locator(NullLocator())


def write_title(axis: Axes, name: str, characters: int) -> None:
    """Write the title of a panel in lines with at most this many characters."""
    axis.set_title(textwrap.fill(escape_label(spell_quantities(name)), characters))


def make_kind_marks(measured: Iterable[bool]) -> list[Line2D]:
    """Return the legend's marks for measured and predicted values, for those kinds that the picture has."""
    kinds = set(measured)
    return [mark for mark, kind in ((_MEASURED, True), (PREDICTED, False)) if kind in kinds]
