"""From a figure to the files of a picture: PNG, SVG and PDF of one layout, the same bytes whenever they are drawn."""

from __future__ import annotations

import dataclasses
import io
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reports import style

_NO_DATES: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What else would differ between two drawings of one figure, by format; PNG first, whose layout the others have."""
FORMATS = tuple(_NO_DATES)


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a picture shows, in words for who does not see it, and what its files are called."""

    name: str
    title: str
    alt: str

    def path(self, directory: Path, suffix: str = "png") -> Path:
        return directory / f"{self.name}.{suffix}"


@dataclasses.dataclass(frozen=True)
class Plot(Picture):
    """A picture that has still to be drawn."""

    figure: Figure

    def save(self, directory: Path, formats: Sequence[str] = FORMATS) -> Picture:
        """Write `<name>.png` and so on: readers see the old picture or the new one, never a part.

        A format that is there already is written again, so that no file tells of other runs than its neighbour.
        """
        dpi, layout = self.figure.dpi, self.figure.get_layout_engine()
        with matplotlib.rc_context(fname=style.STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at worst, names that no installed font can write
            for suffix, metadata in _NO_DATES.items():
                path = self.path(directory, suffix)
                if suffix not in formats and not path.exists():
                    continue
                temporary = directory / f".{path.name}.{os.getpid()}"
                # Not savefig, which lays out and draws everything once more before it draws.
                if suffix == "png":
                    FigureCanvasAgg(self.figure).print_png(temporary, metadata=metadata)
                elif suffix == "svg":
                    FigureCanvasSVG(self.figure).print_svg(temporary, metadata=metadata)
                else:
                    FigureCanvasPdf(self.figure).print_pdf(temporary, metadata=metadata)
                os.replace(temporary, path)
                self.figure.set_layout_engine("none")  # laid out once, for all formats
        self.figure.set_layout_engine(layout)
        self.figure.dpi = dpi
        return Picture(self.name, self.title, self.alt)


Maker = Callable[[], Plot | None]
"""Makes a plot, or nothing where there is nothing to show."""


def save_all(makers: Mapping[str, Maker], directory: Path, formats: Sequence[str] = FORMATS) -> dict[Path, Picture]:
    """Write the pictures, in order; returns them by the paths of their PNGs.

    Each is made and drawn by a fork of its own, on all cores: it is most of the time of a report, and
    figures do not travel between processes. Files of a picture that is no longer made are deleted.

    Args:
        makers: by the names of the plots.
        formats: some of `FORMATS`, PNG among them.
    """
    if "pdf" in formats:
        _warm_up()
    context = multiprocessing.get_context("fork")
    pictures: dict[str, Picture | None] = {}
    drawing: dict[multiprocessing.connection.Connection, tuple[str, multiprocessing.process.BaseProcess]] = {}

    def finish() -> None:
        ready = multiprocessing.connection.wait(drawing)
        for result in [one for one in drawing if one in ready]:
            name, process = drawing.pop(result)
            try:
                pictures[name] = result.recv()
            except EOFError:
                pictures[name] = _draw(
                    makers[name], directory, formats
                )  # here, so that the error is told, if it is one
            process.join()

    for name, maker in makers.items():
        result, end = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(maker, directory, formats, end), daemon=True)
        process.start()
        end.close()
        drawing[result] = (name, process)
        if len(drawing) >= len(os.sched_getaffinity(0)):
            finish()
    while drawing:
        finish()
    for name in [name for name in makers if pictures[name] is None]:
        for suffix in FORMATS:
            Picture(name, "", "").path(directory, suffix).unlink(missing_ok=True)
    return {picture.path(directory): picture for name in makers if (picture := pictures[name])}


def _warm_up() -> None:
    """Load, once for all forks, what embeds fonts."""
    with matplotlib.rc_context(fname=style.STYLE):
        figure = Figure(figsize=(1, 1), layout="none")  # type: ignore[arg-type]
        figure.text(0, 0, "a")
        FigureCanvasPdf(figure).print_pdf(io.BytesIO())


def _draw(maker: Maker, directory: Path, formats: Sequence[str]) -> Picture | None:
    with matplotlib.rc_context(fname=style.STYLE):
        plot = maker()
    return plot.save(directory, formats) if plot else None


def _send(maker: Maker, directory: Path, formats: Sequence[str], end: multiprocessing.connection.Connection) -> None:
    try:
        end.send(_draw(maker, directory, formats))
    except Exception:
        sys.exit(1)  # without a word: the parent tries again
