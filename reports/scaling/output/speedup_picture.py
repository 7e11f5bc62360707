"""Plot the speed-up over training without compression, by workers, for all workloads and networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradsweep.options.units import spell_quantities
from reports.plots import style
from reports.plots.layout import GREY, LEGEND, TEXT, escape_label
from reports.plots.marks import draw_legend, make_label_marks
from reports.plots.picture import Plot
from reports.reading.text import format_number
from reports.scaling.model.cross_validation import CrossValidation
from reports.scaling.output import lines
from reports.scaling.output.fit_tables import summarize_check
from reports.scaling.output.speedup import Speedup

_ACROSS, _TITLE = 4, 20  # panels side by side, and characters of their names' lines


def plot_speedups(found: Sequence[Speedup], check: CrossValidation) -> Plot | None:
    """Plot a row of panels for each workload, a panel for each network, with the model's error for left-out cells."""
    if not found:
        return None
    workloads, networks, methods = (
        list(dict.fromkeys(getattr(one, name) for one in found)) for name in ("workload", "network", "method")
    )
    across = min(_ACROSS, len(networks))
    down = math.ceil(len(networks) / across)
    height = 1.9 * down * len(workloads)
    figure = Figure(figsize=(TEXT, LEGEND + 0.15 + height))
    grid = figure.subplots(down * len(workloads), across, squeeze=False, sharex=True, sharey=True)
    for row, workload in enumerate(workloads):
        axes = list(grid[row * down : (row + 1) * down].flat)
        for place, axis in enumerate(axes):
            if place >= len(networks):
                axis.remove()
                continue
            here = [one for one in found if (one.workload, one.network) == (workload, networks[place])]
            _draw_panel(axis, here, methods)
            lines.write_title(axis, networks[place], _TITLE)
            if place % across == 0:
                axis.set_ylabel("\n".join([*([escape_label(workload)] if workload else []), "times as fast as none"]))
            if row == len(workloads) - 1 and place >= len(networks) - across:
                axis.set_xlabel("workers")
                axis.tick_params(labelbottom=True)
    marks = [*make_label_marks(style.choose_looks(methods)), *lines.make_kind_marks(one.is_measured for one in found)]
    draw_legend(figure, marks, lines.explain_bands(len(methods)), *summarize_check(check)[:1])
    most = max(one.workers for one in found)
    ends = [
        " ".join(filter(None, (one.workload, spell_quantities(one.network), one.method, format_number(one.times, 2))))
        for one in found
        if one.workers == most
    ]
    alt = f"Times as fast as without compression, by workers; with {most} workers: {'; '.join(ends[:40])}."
    return Plot("scaling_speedup", "Times as fast as without compression", alt, figure)


def _draw_panel(axis: Axes, found: Sequence[Speedup], methods: Sequence[str]) -> None:
    axis.axhline(1.0, color=GREY, linewidth=0.8)
    for method, look in style.choose_looks(methods).items():
        line = [(one.workers, one.times, one.low, one.high, one.is_measured) for one in found if one.method == method]
        if line:  # perhaps only another workload has it
            lines.draw_line(axis, line, look, has_band=len(methods) <= lines.MOST_BANDS)
    axis.set_yscale("log")
    lines.format_ticks(axis.yaxis)
    lines.frame_workers(axis, sorted({one.workers for one in found}))
