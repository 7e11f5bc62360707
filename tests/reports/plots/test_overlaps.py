"""No text of a picture lies on another one or leaves the picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import reports
from reports.analysis.grid import lay_out_runs
from reports.plots import style
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
    outside = [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1]
    return [*found, *(f"{text!r} leaves the picture" for text in outside)]


def check(sweep: Path, monkeypatch: pytest.MonkeyPatch, swept: Sequence[str] = ()) -> None:
    report = reports.load(sweep)
    plots = list(make_plots(lay_out_runs(report.runs, swept), report.epochs, report.profile))
    collisions = {plot.name: find_collisions(plot.figure, monkeypatch) for plot in plots}
    assert len(plots) >= 10 and not {name: found[:5] for name, found in collisions.items() if found}


def test_in_the_gallery(monkeypatch: pytest.MonkeyPatch) -> None:
    check(ROOT / "docs/gallery/digits", monkeypatch)


@pytest.mark.parametrize("count", [3, 8, 9, 20, pytest.param(40, marks=pytest.mark.slow)])
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
    assert find_collisions(figure, monkeypatch) == ["'one' on 'two'", "'far outside' leaves the picture"]
