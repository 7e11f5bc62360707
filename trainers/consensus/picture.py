"""Pictures of averaging consensus: how far vectors are from their mean, and how quickly they get there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from gradsweep.cli import picture_files
from trainers.consensus.simulate import Course

_LOOKS = {
    "exact": ("#BBBBBB", "-"),  # wide and light: lines of schemes that are as good lie on it
    "q1": ("#E69F00", "--"),
    "q2": ("#D55E00", "-."),
    "choco": ("#0072B2", "-"),
    "deep_squeeze": ("#009E73", ":"),
}

_FLOOR = 1e-16
_SETTINGS: Any = {**picture_files.SETTINGS, "font.size": 8.5, "axes.labelcolor": picture_files.TEXT}


def draw(title: str, courses: Mapping[str, tuple[str, Course]], path: Path) -> None:
    """Draw the errors of schemes against iterations and bits into a file with a suffix of matplotlib: .png, .svg, .pdf.

    Args:
        courses: by scheme, the label of its line and its course. Errors below 1e-16 of the start are not drawn.

    Raises:
        OSError: the file cannot be written.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(7.2, 2.7), layout="constrained", facecolor="white")
        iterations, bits = figure.subplots(1, 2, sharey=True)
        for scheme, (label, course) in courses.items():
            colour, line = _LOOKS[scheme]
            share = np.where(np.isfinite(course.errors), course.errors / course.errors[0], np.nan)
            share[share < _FLOOR] = np.nan
            look = {"color": colour, "linestyle": line, "linewidth": 3.0 if scheme == "exact" else 1.5}
            iterations.plot(share, label=label, **look)
            bits.plot(course.bits[1:], share[1:], **look)
        _style(iterations, "iterations")
        _style(bits, "bits that a worker has sent")
        bits.set_xscale("log")
        bits.tick_params(labelleft=False)
        iterations.set_ylabel("error, of the start")
        iterations.set_title(title, loc="left", fontsize=8.5, fontweight="bold")
        # Beside both plots, where it hides no line.
        labels = iterations.get_legend_handles_labels()
        bits.legend(*labels, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8)
        picture_files.save(figure, path, dpi=200)


def _style(axes: Axes, name: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(name)
    axes.grid(color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#666666")
