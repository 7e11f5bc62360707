"""Plot the simulated efficiency by workers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gradsweep.options.units import spell_quantities
from reports.plots import style
from reports.plots.layout import LEGEND, TEXT, escape_label
from reports.plots.marks import draw_legend, make_label_marks
from reports.plots.picture import Plot
from reports.reading.text import format_number
from reports.scaling.output import lines
from reports.scaling.output.simulated import SimulatedSteps

NAME = "simulated_efficiency"


def plot_efficiency(found: Sequence[SimulatedSteps]) -> Plot:
    """Plot a panel for each network, a line for each exchange; hollow marks are simulations that are not exact."""
    networks = list(dict.fromkeys(one.network for one in found))
    looks = style.choose_looks(list(dict.fromkeys(one.exchange for one in found)))
    counts = sorted({one.workers for one in found})
    figure = Figure(figsize=(TEXT, LEGEND + 2.4))
    axes = list(figure.subplots(1, len(networks), squeeze=False, sharey=True).flat)
    for axis, network in zip(axes, networks, strict=True):
        for exchange, look in looks.items():
            line = [one for one in found if (one.network, one.exchange) == (network, exchange)]
            axis.plot([one.workers for one in line], [100 * one.efficiency for one in line], color=look.colour)
            for one in line:
                face = look.colour if one.exact else "white"
                place = [one.workers], [100 * one.efficiency]
                axis.plot(*place, look.marker, color=look.colour, markerfacecolor=face, markersize=3.5)
        axis.set_title(escape_label(spell_quantities(network)))
        lines.frame_workers(axis, counts)
        axis.set(xlabel="workers", ylim=(0, 105))
    axes[0].set_ylabel("efficiency [%]")
    draw_legend(figure, make_label_marks(looks), "" if all(one.exact for one in found) else "hollow: not exact")
    last = [
        f"{spell_quantities(one.network)}, {one.exchange}: {format_number(100 * one.efficiency, 2)} %"
        for one in found
        if one.workers == counts[-1]
    ]
    alt = f"Simulated efficiency by workers; with {counts[-1]} workers: {'; '.join(last[:24])}."
    return Plot(NAME, "Simulated efficiency", alt, figure)
