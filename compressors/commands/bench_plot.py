"""Draw the picture of `bench`: methods as rows, the fastest at the top."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compressors.commands.descriptions import format_number

_ENCODE, _DECODE, _OTHER = "#33658a", "#f6ae2d", "#5c8001"
_ROW = 0.26  # inches


@dataclasses.dataclass(frozen=True)
class Row:
    """The figures of one method; also a line of bench.csv, whose last columns describe the machine."""

    method: str
    units: str  # "flat" or "layers"
    elements: int
    payload_bytes: int
    bits_per_element: float
    error: float | None  # ||x - Q(x)|| / ||x||; None where only directions are kept
    encode_s: float
    decode_s: float
    encode_per_copy: float
    decode_per_copy: float
    per_copy: float
    gigabytes_per_s: float  # float32 bytes through encode and decode
    pays_below_bit_per_s: float | None  # None where the payload is not smaller
    kernels: str  # numba, triton or torch; several with a + between


def draw(rows: Sequence[Row], heading: str, path: Path) -> None:
    """Draw the picture and write it as PNG. The first of `rows` is the memory copy, to which times are relative."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ordered = sorted(rows[1:], key=lambda row: row.per_copy, reverse=True)
    figure = Figure(figsize=(14, 2.2 + _ROW * len(ordered)), layout="constrained")
    FigureCanvasAgg(figure)
    time, bits, error, bandwidth = figure.subplots(1, 4, sharey=True, width_ratios=[3, 2, 2, 2])
    _draw_times(time, ordered)
    _draw_values(bits, [row.bits_per_element for row in ordered], "bits per element", mark=32)
    _draw_values(error, [row.error for row in ordered], "||x - Q(x)|| / ||x||, noise", mark=1)
    paying = [None if row.pays_below_bit_per_s is None else row.pays_below_bit_per_s / 1e9 for row in ordered]
    _draw_values(bandwidth, paying, "pays below, Gbit/s")
    labels = [row.method if row.units == "flat" else f"{row.method} (layers)" for row in ordered]
    time.set(yticks=range(len(ordered)), yticklabels=labels, ylim=(-0.7, len(ordered) - 0.3))
    figure.suptitle("\n".join(textwrap.wrap(heading, 130)), fontsize="small")
    figure.savefig(path, dpi=130)


def _draw_times(axes: Any, rows: Sequence[Row]) -> None:
    parts = [(row.encode_per_copy, row.decode_per_copy, row.per_copy) for row in rows]
    places = range(len(rows))
    axes.hlines(places, [min(part) for part in parts], [max(part) for part in parts], color="0.8", zorder=1)
    encode, decode, both = ([part[place] for part in parts] for place in range(3))
    axes.scatter(encode, places, color=_ENCODE, s=18, label="encode", zorder=3)
    axes.scatter(decode, places, color=_DECODE, s=18, label="decode", zorder=2)
    axes.scatter(both, places, color="black", marker="|", s=60, label="both", zorder=4)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small", frameon=False)
    _style(axes, [value for part in parts for value in part], "time, in memory copies", 1)


def _draw_values(axes: Any, values: Sequence[float | None], name: str, mark: float | None = None) -> None:
    """Draw a dot and its number for each row with a value above zero; a logarithmic axis cannot show others."""
    present = [(place, value) for place, value in enumerate(values) if value]
    axes.scatter([value for _, value in present], [place for place, _ in present], color=_OTHER, s=18, zorder=3)
    for place, value in present:
        axes.annotate(
            format_number(value), (value, place), (6, 0), textcoords="offset points", va="center", fontsize="x-small"
        )
    _style(axes, [value for _, value in present], name, mark)


def _style(axes: Any, values: Sequence[float], name: str, mark: float | None) -> None:
    """Set a logarithmic axis from one power of ten to another, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    known = [value for value in (*values, mark) if value and math.isfinite(value)] or [1.0]
    axes.set_xscale("log")
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    axes.set(xlabel=name, xlim=(10.0**low / 1.2, 10.0 ** max(high, low + 1) * 2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if mark is not None:
        axes.axvline(mark, color="0.4", linewidth=0.8, linestyle="--", zorder=1)
    axes.grid(axis="both", color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
