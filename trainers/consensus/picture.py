"""Pictures of averaging consensus: how far vectors are from their mean, and how quickly they get there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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
    "exact": ("#BBBBBB", "-"),  # wide and light: others lie on it where they are as good
    "q1": ("#E69F00", "--"),
    "q2": ("#D55E00", "-."),
    "choco": ("#0072B2", "-"),
    "deep_squeeze": ("#009E73", ":"),
}


_FLOOR = 1e-10  # of what is left of an error: smaller ones tell nothing of stepsizes any more
_SETTINGS: Any = {**picture_files.SETTINGS, "font.size": 8.5, "axes.labelcolor": picture_files.TEXT}


@dataclasses.dataclass(frozen=True)
class Panel:
    """The schemes that one panel compares.

    Attributes:
        title: what they have in common.
        courses: by scheme, the words for its line and how it went.
        floor: smaller errors are not shown.
    """

    title: str
    courses: Mapping[str, tuple[str, Course]]
    floor: float = 1e-16


@dataclasses.dataclass(frozen=True)
class Remainders:
    """The remaining errors of workers by stepsize.

    Attributes:
        title: what the lines have in common.
        iterations: after how many.
        lines: by what they are called, stepsizes and for each the part of the error that is left; NaN is not drawn.
    """

    title: str
    iterations: int
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]


def draw_remainders(panels: Sequence[Remainders], path: Path) -> None:
    """Draw the panels of remainders side by side and write them to `path`.

    Raises:
        OSError: the file cannot be written.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(0.6 + 3.3 * len(panels), 3.2), layout="constrained", facecolor="white")
        for place, (panel, axes) in enumerate(zip(panels, figure.subplots(1, len(panels), sharey=True), strict=True)):
            for (words, (stepsizes, left)), look in zip(panel.lines.items(), _LOOKS.values(), strict=False):
                colour, line = look
                axes.plot(stepsizes, left, label=words, color=colour, linestyle=line, marker=".", linewidth=1.5)
            _style(axes, "stepsize γ")
            axes.set_xscale("log")
            axes.set_ylim(_FLOOR, 1.5)
            axes.set_title(panel.title, loc="left", fontsize=8.5, fontweight="bold")
            if not place:
                axes.set_ylabel(f"error after {panel.iterations} steps, of the start")
                axes.legend(loc="lower left", frameon=False, fontsize=8)
        picture_files.save(figure, path, dpi=200)


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw a row for each panel and write it to `path`, with a suffix of matplotlib: .png, .svg, .pdf.

    Raises:
        OSError: the file cannot be written.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(7.2, 0.3 + 2.4 * len(panels)), layout="constrained", facecolor="white")
        grid = figure.subplots(len(panels), 2, squeeze=False, sharey="row", width_ratios=(1, 1))
        for panel, (iterations, bits) in zip(panels, grid, strict=True):
            for scheme, (words, course) in panel.courses.items():
                colour, line = _LOOKS[scheme]
                share = np.where(np.isfinite(course.errors), course.errors / course.errors[0], np.nan)
                share[share < panel.floor] = np.nan
                look = {"color": colour, "linestyle": line, "linewidth": 3.0 if scheme == "exact" else 1.5}
                iterations.plot(share, label=words, **look)
                bits.plot(course.bits[1:], share[1:], **look)
            _style(iterations, "iterations")
            _style(bits, "bits that a worker has sent")
            bits.set_xscale("log")
            bits.tick_params(labelleft=False)
            iterations.set_ylabel("error, of the start")
            iterations.set_title(panel.title, loc="left", fontsize=8.5, fontweight="bold")
            # Right of both, where no line can be behind it.
            bits.legend(
                *iterations.get_legend_handles_labels(),
                loc="center left",
                bbox_to_anchor=(1.02, 0.5),
                frameon=False,
                fontsize=8,
            )
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
