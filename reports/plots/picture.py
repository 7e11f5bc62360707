"""Write figures as files: PNG, SVG and PDF of one layout, with the same bytes whenever they are drawn."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from gradsweep import files
from reports.plots import style
from reports.tables.file_formats import PICTURES

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_FORMATS: Mapping[str, tuple[type[FigureCanvasBase], dict[str, None]]] = {
    "png": (FigureCanvasAgg, {"Software": None}),
    "svg": (FigureCanvasSVG, {"Date": None, "Creator": None}),
    "pdf": (FigureCanvasPdf, {"CreationDate": None, "Creator": None, "Producer": None}),
}
"""What draws a format, and the metadata that would differ between two drawings; PNG first, which sets the layout."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """The names of a picture's files, its title, and a description for those who do not see it."""

    name: str
    title: str
    alt: str

    def get_path(self, directory: Path, suffix: str = "png") -> Path:
        return directory / f"{self.name}.{suffix}"


@dataclasses.dataclass(frozen=True)
class Plot(Picture):
    """A picture that is not drawn yet."""

    figure: Figure

    def save(self, directory: Path, formats: Sequence[str] = PICTURES) -> Picture:
        """Write the files `<name>.png` and so on atomically: a reader sees the old picture or the new one.

        A file in another format that exists already is written again, so that all formats show the same runs.
        """
        dpi, layout = self.figure.dpi, self.figure.get_layout_engine()
        with matplotlib.rc_context(fname=style.STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at worst, names that no installed font can write
            for suffix, (canvas, metadata) in _FORMATS.items():
                path = self.get_path(directory, suffix)
                if suffix not in formats and not path.exists():
                    continue
                drawn = io.BytesIO()
                # Not savefig, which lays out and draws everything once more before it draws.
                getattr(canvas(self.figure), f"print_{suffix}")(drawn, metadata=metadata)
                files.write_bytes(path, drawn.getvalue(), durable=False)
                self.figure.set_layout_engine("none")  # laid out once, for all formats
        self.figure.set_layout_engine(layout)
        self.figure.dpi = dpi
        return Picture(self.name, self.title, self.alt)


Maker = Callable[[], Plot | None]
"""Makes a plot, or None if there is nothing to show."""


class Drawing:
    """Draws pictures in forks of this process, one for each core, while this process continues.

    Drawing takes most of the time of a report, and figures cannot be sent between processes. Use it in a `with`
    statement: if the block fails, it ends all forks.

    Args:
        makers: the functions that make the plots, by name.
        directory: of the files; files of pictures that are no longer made are deleted.
        formats: some of `PICTURES`, including PNG.
    """

    def __init__(self, makers: Mapping[str, Maker], directory: Path, formats: Sequence[str] = PICTURES) -> None:
        self._makers, self._directory, self._formats = makers, directory, formats
        if "pdf" in formats:
            _warm_up()
        context = multiprocessing.get_context("fork")
        count = min(len(os.sched_getaffinity(0)), len(makers))
        self._forks = []
        for rank in range(count):
            result, end = context.Pipe(duplex=False)
            share = dict(list(makers.items())[rank::count])
            fork = context.Process(target=_draw_some, args=(share, directory, formats, end), daemon=True)
            fork.start()
            end.close()
            self._forks.append((fork, result))

    def finish(self) -> dict[Path, Picture]:
        """Wait for all pictures; return them in the order of their makers, with the paths of their PNGs.

        Raises:
            Exception: the error of a maker or of the file system.
        """
        pictures: dict[str, Picture | None] = {}
        for _, result in self._forks:
            with contextlib.suppress(EOFError):  # the fork was killed, perhaps for lack of memory
                pictures |= result.recv()
        for name, maker in self._makers.items():
            if name not in pictures:  # draws again, so that an error is raised here
                pictures[name] = _draw(maker, self._directory, self._formats)
            if pictures[name] is None:
                for suffix in PICTURES:
                    Picture(name, "", "").get_path(self._directory, suffix).unlink(missing_ok=True)
        found = (pictures[name] for name in self._makers)
        return {picture.get_path(self._directory): picture for picture in found if picture}

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, *_: object) -> None:
        for fork, result in self._forks:
            fork.kill()  # not terminate: it may have this process's handlers
            fork.join()
            result.close()
            for unfinished in self._directory.glob(f".*.{fork.pid}"):
                unfinished.unlink()


def _warm_up() -> None:
    """Load the code that embeds fonts, once for all forks."""
    with matplotlib.rc_context(fname=style.STYLE):
        figure = Figure(figsize=(1, 1), layout="none")  # type: ignore[arg-type]
        figure.text(0, 0, "a")
        FigureCanvasPdf(figure).print_pdf(io.BytesIO())


def _draw(maker: Maker, directory: Path, formats: Sequence[str]) -> Picture | None:
    with matplotlib.rc_context(fname=style.STYLE):
        plot = maker()
    return plot.save(directory, formats) if plot else None


def _draw_some(makers: Mapping[str, Maker], directory: Path, formats: Sequence[str], end: Connection) -> None:
    """Draw one fork's pictures and send them to the parent process, which draws them again after a failure."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    gc.disable()  # figures are many small objects: collecting garbage takes as long as drawing some
    pictures, parent = {}, multiprocessing.parent_process()
    assert parent is not None
    for name, maker in makers.items():
        if not parent.is_alive():
            return  # it was killed
        with contextlib.suppress(Exception):
            pictures[name] = _draw(maker, directory, formats)
    end.send(pictures)
