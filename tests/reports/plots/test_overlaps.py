"""No text of a picture lies on another one, on a line or an axis, or leaves the picture."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import reports
from reports.__main__ import main
from reports.analysis.grid import lay_out_runs
from reports.plots import picture, style
from reports.plots.picture import Maker
from reports.plots.sweep_plots import make_plots
from tests.conftest import ROOT
from tests.reports import fabricate

pytestmark = pytest.mark.thorough

NAMES = ["none", "qsgd", "svd", "topk", "powersgd", "terngrad", *(f"method{number}" for number in range(34))]
SLACK = 2.0  # pixels of 200 in an inch: boxes have room for the letters' tails


def find_collisions(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw a figure; return the pairs of texts that overlap, and the texts that are not all inside."""
    drawn: dict[int, Text] = {}
    draw_text = RendererAgg.draw_text

    def note(self: RendererAgg, *args: Any, **kwargs: Any) -> None:
        if (text := kwargs.get("mtext")) is not None:
            drawn[id(text)] = text
        draw_text(self, *args, **kwargs)

    with monkeypatch.context() as patch, matplotlib.rc_context(fname=style.STYLE):
        patch.setattr(RendererAgg, "draw_text", note)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        boxes = [(text.get_text(), text.get_window_extent(renderer).padded(-SLACK)) for text in drawn.values()]
    width, height = canvas.get_width_height()
    assert len(boxes) > 3
    found = [
        f"{first!r} on {second!r}" for (first, a), (second, b) in itertools.combinations(boxes, 2) if a.overlaps(b)
    ]
    found += [f"{text!r} on a line or an axis" for axis in figure.axes for text in find_crossed(axis, renderer)]
    outside = [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1]
    return [*found, *(f"{text!r} leaves the picture" for text in outside)]


def find_crossed(axis: Axes, renderer: RendererAgg) -> list[str]:
    """Return the texts within axes that cross a line or an axis; a text on white paper may."""
    drawn = [artist for artist in (*axis.lines, *axis.spines.values()) if artist.get_visible()]
    paths = [artist.get_path().transformed(artist.get_transform()) for artist in drawn]
    for lines in axis.collections:
        if isinstance(lines, LineCollection) and lines.get_zorder() >= 1:  # not the grid
            paths += [path.transformed(lines.get_transform()) for path in lines.get_paths()]
    paths = [path for path in paths if len(path.vertices) > 1]
    boxes = [
        (text.get_text(), text.get_window_extent(renderer).padded(-SLACK))
        for text in axis.texts
        if text.get_bbox_patch() is None
    ]
    return [text for text, box in boxes if text and any(path.intersects_bbox(box, filled=False) for path in paths)]


class Collected(contextlib.nullcontext[Any]):
    """Takes the place of `Drawing`: keeps the makers of pictures."""

    makers: ClassVar[Mapping[str, Maker]] = {}

    def __init__(self, makers: Mapping[str, Maker], *_: object) -> None:
        super().__init__(self)
        type(self).makers = makers

    def finish(self) -> None:
        pass


def check(sweep: Path, monkeypatch: pytest.MonkeyPatch, swept: Sequence[str] = (), least: int = 10) -> None:
    report = reports.load(sweep)
    plots = list(make_plots(lay_out_runs(report.runs, swept), report.epochs, report.profile))
    collisions = {plot.name: find_collisions(plot.figure, monkeypatch) for plot in plots}
    assert len(plots) >= least and not {name: found[:5] for name, found in collisions.items() if found}


def test_in_the_gallery(monkeypatch: pytest.MonkeyPatch) -> None:
    check(ROOT / "docs/gallery/digits", monkeypatch)
    raced = ROOT / "docs/gallery/when-does-compression-pay/resnet18"
    check(raced, monkeypatch, ["compressor", "network.bandwidth", "workers"], 5)


def test_of_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = [ROOT / "docs/gallery/when-does-compression-pay" / name for name in ("wideresnet34", "resnet18")]
    monkeypatch.setattr(picture, "Drawing", Collected)
    words = ["--network", "10gbit,100gbit", "--into", str(tmp_path), "--quiet"]
    assert main(["scaling", *map(str, sweeps), *words]) == 0
    with matplotlib.rc_context(fname=style.STYLE):
        plots = [plot for plot in (make() for make in Collected.makers.values()) if plot]
    collisions = {plot.name: find_collisions(plot.figure, monkeypatch) for plot in plots}
    assert len(plots) >= 8 and not {name: found[:5] for name, found in collisions.items() if found}


@pytest.mark.parametrize("count", [3, 8, 9, *(pytest.param(count, marks=pytest.mark.slow) for count in (20, 40))])
def test_with_many_compressors(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = [
        fabricate.config(name, workers, seed=seed, epochs=3)
        for name in NAMES[:count]
        for workers in (2, 4)
        for seed in (0, 1)
    ]
    check(fabricate.sweep(tmp_path / "s", grid), monkeypatch)


@pytest.mark.parametrize("values", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_with_other_keys(values: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [0.1 / (1 + place) for place in range(values)]
    grid = [
        fabricate.config(name, 4, seed=seed, epochs=3, optimizer__lr=float(f"{rate:.3g}"))
        for name in NAMES[:4]
        for rate in rates
        for seed in (0, 1)
    ]
    check(fabricate.sweep(tmp_path / "s", grid), monkeypatch, ["compressor", "optimizer.lr", "seed"])


def test_overlaps_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure(figsize=(3, 1))
    for x, text in ((0.1, "one"), (0.12, "two"), (0.6, "three"), (0.95, "far outside")):
        figure.text(x, 0.5, text)
    axis = figure.add_axes((0.2, 0.7, 0.2, 0.2))
    axis.plot([0, 1], [0, 1])
    axis.text(0.5, 0.5, "four")
    expected = ["'one' on 'two'", "'four' on a line or an axis", "'far outside' leaves the picture"]
    assert find_collisions(figure, monkeypatch) == expected
