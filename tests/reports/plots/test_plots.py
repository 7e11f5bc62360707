"""What is drawn is what was measured, who is not drawn is named, and colours keep their meaning."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, NullFormatter

import reports
from gradsweep import csv_columns, files, run_directory
from reports.analysis.grid import lay_out_runs
from reports.analysis.statistics import summarize
from reports.building.sweep_report import BuiltReport
from reports.plots import style
from reports.plots.layout import GREY, label_more_ticks
from reports.plots.marks import _spread_heights
from reports.plots.picture import Drawing, Maker, Picture, Plot
from reports.plots.sweep_plots import list_makers, make_plots
from reports.reading.text import format_number
from reports.tables.file_formats import PICTURES
from tests.reports import fabricate

CURVES = [f"{measure}_{progress}" for measure in ("accuracy", "loss") for progress in ("epoch", "time", "bytes")]
NAMES = ["throughput", "efficiency", *CURVES, "pareto_throughput", "pareto_bytes", "breakdown"]
NAMES += ["compression_error_step", "memory_norm_step"]


def drawn(sweep: Path, *names: str) -> dict[str, Plot]:
    """The plots of a sweep with these names, or all."""
    report = reports.load(sweep)
    found = list_makers(lay_out_runs(report.runs), report.epochs, report.profile)
    with matplotlib.rc_context(fname=style.STYLE):
        made = {name: maker() for name, maker in found.items() if name in names or not names}
    return {name: plot for name, plot in made.items() if plot}


def mean_lines(axis: Axes) -> list[LineCollection]:
    """The collections of lines of the test set, one for each label, without backdrop and training set."""
    return [
        artist
        for artist in axis.collections
        if isinstance(artist, LineCollection) and artist.get_linestyle()[0][1] is None and artist.get_zorder() == 2
    ]


def words(figure: Figure) -> list[list[str]]:
    return [[text.get_text() for text in axis.texts] for axis in figure.axes]


def titles(figure: Figure) -> list[str]:
    return [axis.get_title(loc="left") for axis in figure.axes]


@pytest.fixture(scope="module")
def nine_plots(nine: Path) -> dict[str, Plot]:
    return drawn(nine)


def test_every_axis_has_a_name_and_a_unit(nine_plots: dict[str, Plot]) -> None:
    assert list(nine_plots) == NAMES
    units = {"throughput": ("workers", "[it/s]"), "accuracy_epoch": ("epoch", "[%]"), "accuracy_time": ("[s]", "[%]")}
    units |= {"accuracy_bytes": ("[MB]", "error [%]"), "breakdown": ("[ms]", ""), "efficiency": ("workers", "[%]")}
    units |= {"loss_epoch": ("epoch", "loss"), "loss_time": ("[s]", "loss"), "loss_bytes": ("[MB]", "loss")}
    units |= {"pareto_throughput": ("[samples/s]", "[%]"), "pareto_bytes": ("[MB]", "[%]")}
    units |= {"compression_error_step": ("step", "‖x − Q(x)‖ / ‖x‖"), "memory_norm_step": ("step", "memory norm")}
    assert set(units) == set(NAMES)
    for name, (x, y) in units.items():
        axes = nine_plots[name].figure.axes
        assert x in axes[-1].get_xlabel() and y in axes[0].get_ylabel()


def line_of(axis: Axes, name: str) -> np.ndarray:
    """x and y of the only line in the colour of a compressor, (2, points)."""
    colour = matplotlib.colors.to_rgba(style.choose_looks([name])[name].colour)
    found = [each for each in axis.collections if isinstance(each, LineCollection)]
    ((segment,),) = (each.get_segments() for each in found if tuple(each.get_color()[0]) == colour)
    return np.asarray(segment).T


def test_throughput_lines_are_the_measured_points(nine: Path, nine_plots: dict[str, Plot]) -> None:
    (axis,) = nine_plots["throughput"].figure.axes
    runs = reports.load(nine).runs
    for name in ("none", "qsgd", "svd"):
        speeds = runs[runs["compressor"] == name].sort_values("workers")["iterations_per_second"]
        x, y = line_of(axis, name)
        assert x.tolist() == [2, 4, 8] and y == pytest.approx(list(speeds))
    assert axis.get_ylim()[0] == 0
    assert [text.get_text() for text in axis.texts] == [
        name
        for name, _ in sorted(
            (
                (name, runs[(runs["compressor"] == name) & (runs["workers"] == 8)]["iterations_per_second"].iloc[0])
                for name in ("none", "qsgd", "svd")
            ),
            key=lambda end: end[1],
        )
    ]
    hollow = [line for line in axis.lines if line.get_markerfacecolor() == "white"]
    assert {count for line in hollow for count in np.asarray(line.get_xdata())} == {4, 8}, "oversubscribed"
    (ideal,) = (line for line in axis.lines if line.get_color() == GREY)
    alone = runs[(runs["compressor"] == "none") & (runs["workers"] == 2)]["iterations_per_second"].iloc[0]
    assert np.asarray(ideal.get_ydata()) == pytest.approx([alone, 2 * alone, 4 * alone]), "the batch is of all workers"


def test_efficiency_is_samples_per_worker_over_those_with_the_fewest(nine: Path, nine_plots: dict[str, Plot]) -> None:
    (axis,) = nine_plots["efficiency"].figure.axes
    runs = reports.load(nine).runs
    for name in ("none", "qsgd", "svd"):
        each = runs[runs["compressor"] == name].sort_values("workers")
        expected = 100 * each["samples_per_second"] / each["samples_per_second"].iloc[0] / each["workers"] * 2
        assert line_of(axis, name)[1] == pytest.approx(list(expected))
    (ideal,) = (line for line in axis.lines if line.get_color() == GREY)
    assert set(np.asarray(ideal.get_ydata())) == {100}


@pytest.mark.parametrize(("name", "column"), [("epoch", "epoch"), ("time", "time_s"), ("bytes", "sent_bytes")])
def test_curves_are_the_epochs(name: str, column: str, nine: Path, nine_plots: dict[str, Plot]) -> None:
    report = reports.load(nine)
    figure = nine_plots[f"accuracy_{name}"].figure
    assert titles(figure) == ["2 workers", "4 workers", "8 workers"]
    assert {axis.get_yscale() for axis in figure.axes} == {"log"}
    size = 1e6 if name == "bytes" else 1
    for axis, workers in zip(figure.axes, (2, 4, 8), strict=True):
        for collection, compressor in zip(mean_lines(axis), ("none", "qsgd", "svd"), strict=True):
            runs = report.runs
            (run,) = runs[(runs["compressor"] == compressor) & (runs["workers"] == workers)]["run"]
            rows = report.epochs[report.epochs["run"] == run]
            (segment,) = collection.get_segments()
            assert np.asarray(segment)[:, 0] == pytest.approx(list(rows[column].astype(float) / size))
            assert np.asarray(segment)[:, 1] == pytest.approx(list(100 - rows["test_accuracy"] * 100)), "errors"
    scale = "log" if name == "bytes" else "linear"
    assert {axis.get_xscale() for axis in figure.axes} == {scale}


def test_bars_add_up_to_the_step(nine: Path, nine_plots: dict[str, Plot]) -> None:
    runs = reports.load(nine).runs
    for axis, workers in zip(nine_plots["breakdown"].figure.axes, (2, 4, 8), strict=True):
        assert [label.get_text() for label in axis.get_yticklabels()] == ["none", "qsgd", "svd"]
        for place, name in enumerate(("none", "qsgd", "svd")):
            row = [each for each in axis.collections if isinstance(each, PolyCollection)][place]
            bars = [path.get_extents() for path in row.get_paths()]
            assert all((bar.y0 + bar.y1) / 2 == pytest.approx(place) for bar in bars) and axis.get_xlim()[0] == 0
            assert [bar.x0 for bar in bars] == pytest.approx([0, *(bar.x1 for bar in bars[:-1])])
            (run,) = runs[(runs["compressor"] == name) & (runs["workers"] == workers)].to_dict("records")
            assert [bar.width for bar in bars][:-1] == pytest.approx(
                [run[f"{phase}_s"] * 1e3 for phase in csv_columns.PHASES]
            )
            assert sum(bar.width for bar in bars) == pytest.approx(run["step_s"] * 1e3)
            assert axis.get_xlim()[1] > bars[-1].x1


def test_who_has_no_numbers_is_named(troubled: BuiltReport) -> None:
    made = make_plots(troubled.grid, troubled.report.epochs, troubled.report.profile)
    figures = {plot.name: plot.figure for plot in made}
    (throughput,) = words(figures["throughput"])
    for word in ("svd: failed", "svd: diverged", "svd: not measured", "none: pending", "qsgd: running"):
        assert throughput.count(word) == 1
    assert throughput.count("qsgd: no run") == 1, "with 8 workers"
    two, four, eight = words(figures["accuracy_epoch"])
    assert not [word for word in two if ":" in word] and "svd: failed" not in two, "it has a curve"
    assert "svd: not measured" in eight and "none: pending" in eight and "qsgd: no run" in eight
    assert len(four) == 2, "the compressor that is missing, and the accuracy of the one that is done"
    (legend,) = figures["accuracy_epoch"].legends
    assert [text.get_text() for text in legend.get_texts()][-1] == "not done"
    bars = words(figures["breakdown"])
    assert troubled.grid.labels.index("svd") == 3 and troubled.grid.labels.index("qsgd") == 2
    assert bars[0][3] == "failed" and bars[1][2:] == ["running", "diverged"]
    assert bars[2] == ["pending", "no run", "no run", "not measured"]


def test_nothing_is_sent_with_one_worker(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config(workers=w) for w in (1, 2)])
    alone, pair = words(drawn(sweep, "accuracy_bytes")["accuracy_bytes"].figure)
    assert alone == ["none: nothing sent"] and pair == []


def test_one_panel_for_each_setting_but_seeds_share_one(tmp_path: Path) -> None:
    grid = [fabricate.config(workers=w, seed=s, optimizer__lr=lr) for w in (2, 4) for s in (0, 1) for lr in (0.1, 0.2)]
    made = drawn(fabricate.sweep(tmp_path / "s", grid))
    assert titles(made["throughput"].figure) == ["optimizer.lr=0.1", "optimizer.lr=0.2"]
    expected = [f"optimizer.lr={lr}\n{workers} workers" for lr in (0.1, 0.2) for workers in (2, 4)]
    assert titles(made["accuracy_epoch"].figure) == expected
    assert titles(made["breakdown"].figure) == [title.replace("\n", ", ") for title in expected]
    for axis in made["accuracy_epoch"].figure.axes:
        assert [len(lines.get_segments()) for lines in mean_lines(axis)] == [1]
    (legend,) = made["accuracy_epoch"].figure.legends
    assert legend.get_title().get_text() == "mean of 2 seeds, band: 95 % interval (computed on the log scale)"
    assert made["breakdown"].figure.legends[0].get_title().get_text() == "mean of 2 seeds"


def test_too_many_settings_share_a_panel_and_it_is_said(tmp_path: Path) -> None:
    grid = [fabricate.config(workers=2, epochs=3, optimizer__lr=0.01 * n) for n in range(1, 31)]
    made = drawn(fabricate.sweep(tmp_path / "s", grid), "accuracy_epoch")
    assert titles(made["accuracy_epoch"].figure) == ["2 workers"]
    (legend,) = made["accuracy_epoch"].figure.legends
    assert legend.get_title().get_text() == "one line for each optimizer.lr"


MANY = ["none", *(f"c{number:02}" for number in range(1, 12))]


def everything(figure: Figure) -> str:
    """All texts of a figure; a long name may stand in two lines of a title."""
    return " ".join(" ".join(text.get_text().split()) for text in figure.findobj(Text))


def many(directory: Path, workers: Sequence[int], names: Sequence[str] = MANY, **changes: Any) -> Path:
    configs = [fabricate.config(name, count, epochs=3, **changes) for name in names for count in workers]
    return fabricate.sweep(directory / "many", configs)


@pytest.fixture(scope="module", params=[(2,), (2, 4)], ids=["one", "two"])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[int]]:
    """12 compressors and two variants with long names, with one or two numbers of workers; one run failed."""
    workers = request.param
    sweep = many(tmp_path_factory.mktemp("crowd"), workers)
    for levels in (7, 127):
        changes = {"compressor__levels": levels, "compressor__bucket_size": 8 * levels}
        fabricate.run(sweep, fabricate.config("qsgd", 2, epochs=3, **changes), name=f"qsgd-{levels}")
    fabricate.run(sweep, fabricate.config("svd", 2, epochs=3), run_directory.PENDING)
    return sweep, workers


@pytest.fixture(scope="module")
def crowd_plots(crowd: tuple[Path, Sequence[int]]) -> dict[str, Plot]:
    return drawn(crowd[0])


@pytest.mark.thorough
def test_everyone_is_named_in_every_picture_of_many(
    crowd: tuple[Path, Sequence[int]], crowd_plots: dict[str, Plot]
) -> None:
    made = crowd_plots
    labels = lay_out_runs(reports.load(crowd[0]).runs).labels
    expected = [name for name in NAMES if name != "efficiency" or len(crowd[1]) > 1]
    assert list(made) == expected and len(labels) == len(MANY) + 3 and "qsgd levels=127 bucket_size=1016" in labels
    for plot in made.values():
        shown = everything(plot.figure)
        assert not [label for label in labels if label not in shown and (len(label) < 20 or "pareto" not in plot.name)]
        assert "pending" in everything(plot.figure), "svd"


def test_up_to_eight_share_a_panel(tmp_path: Path) -> None:
    for count, is_shared in ((8, True), (9, False)):
        made = drawn(many(tmp_path / str(count), (2, 4), MANY[:count]), "throughput", "accuracy_epoch")
        axes = {name: len(plot.figure.axes) for name, plot in made.items()}
        assert axes == {"throughput": 1, "accuracy_epoch": 2} if is_shared else {"throughput": 9, "accuracy_epoch": 18}


@pytest.mark.thorough
def test_many_with_many_numbers_of_workers_fit_on_a_page(tmp_path: Path) -> None:
    figure = drawn(many(tmp_path, (2, 3, 4, 5), MANY[:9]), "accuracy_epoch")["accuracy_epoch"].figure
    assert [text.get_text() for text in figure.texts if "workers" in text.get_text()] == ["2 workers", "5 workers"]
    assert len(figure.axes) == 18 and figure.get_figheight() < 9
    assert figure.legends[0].get_title().get_text() == "2 of 4 panels, all are in report.html"
    first, second, *_ = figure.axes
    lines = [each for each in second.collections if each.get_zorder() == 0.5]
    assert first.yaxis.get_visible() and not second.yaxis.get_visible()
    ticks = [float(path.vertices[0, 1]) for path in lines[0].get_paths()]
    assert ticks and set(ticks) <= set(first.get_yticks()), "the grid goes on where there are no ticks"


def test_many_with_one_number_of_workers_are_ranked(tmp_path: Path) -> None:
    sweep = many(tmp_path, (2,))
    speeds = reports.load(sweep).runs.set_index("compressor")["iterations_per_second"].sort_values(ascending=False)
    made = drawn(sweep)
    (axis,) = made["throughput"].figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(speeds.index)
    bars = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    assert [bar.get_width() for bar in bars] == pytest.approx(list(speeds))
    place = list(speeds.index).index("none")
    assert [matplotlib.colors.to_hex(bar.get_facecolor()) == style.BLACK for bar in bars].index(True) == place
    (line,) = axis.lines
    assert list(np.asarray(line.get_xdata())) == pytest.approx([speeds["none"]] * 2)
    assert axis.get_xlabel().replace("\n", " ") == "throughput with 2 workers [it/s]; ‖ 26 timed steps"
    assert axis.get_yticklabels()[place].get_weight() == "bold"
    assert all("‖" in text.get_text() for text in axis.texts)
    (axis,) = made["breakdown"].figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == list(speeds.index), "the fastest first here, too"


def test_the_interval_over_seeds_lies_on_a_bar(tmp_path: Path) -> None:
    sweep = many(tmp_path, (2,))
    for name in MANY:
        fabricate.run(sweep, fabricate.config(name, 2, epochs=3, seed=1))
    figure = drawn(sweep, "throughput")["throughput"].figure
    (axis,) = figure.axes
    ends = sorted(value for line in axis.lines if line.get_marker() == "|" for value in np.asarray(line.get_xdata()))
    cells = reports.load(sweep).runs.groupby("compressor")["iterations_per_second"]
    found = [summarize(values) for _, values in cells]
    assert ends == pytest.approx(sorted(end for summary in found for end in (summary.low, summary.high)))
    assert figure.legends[0].get_title().get_text() == "mean of 2 seeds, line: 95 % interval"


@pytest.mark.thorough
def test_the_interval_of_a_single_run_is_drawn(tmp_path: Path) -> None:
    for workers, place in (((2,), "x"), ((2, 4), "y")):
        grid = [fabricate.config(name, count) for name in ("none", "qsgd") for count in workers]
        sweep = fabricate.sweep(tmp_path / place, grid)
        for run in run_directory.runs_of(sweep):
            rate = (run.result() or {})["iterations_per_second"]
            more = {"throughput_low": 0.9 * rate, "throughput_high": 1.2 * rate}
            files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), **more})
        figure = drawn(sweep)["throughput"].figure
        assert "95 % interval over a single run's steps" in figure.legends[0].get_title().get_text().replace("\n", " ")
        rates = reports.load(sweep).runs["iterations_per_second"].to_numpy()
        if place == "x":
            ends = [tuple(line.get_xdata()) for line in figure.axes[0].lines]
        else:
            (axis,) = figure.axes
            parts = [each for each in axis.collections if isinstance(each, LineCollection)]
            ends = [tuple(path[:, 1]) for part in parts for path in part.get_segments() if path[0, 0] == path[1, 0]]
        assert sorted(ends) == [pytest.approx((0.9 * rate, 1.2 * rate)) for rate in sorted(rates)]


@pytest.mark.thorough
def test_what_is_too_wide_for_a_picture_is_in_several_lines(nine: Path, tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config(name, 4) for name in ("none", "qsgd")])
    for run in run_directory.runs_of(sweep):
        more = {"timed_steps": 12, "yardstick": fabricate.yardstick(others=0.5)}
        files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), **more})
    (axis,) = drawn(sweep)["throughput"].figure.axes
    text = (
        "throughput with 4 workers [it/s]; † more workers than cores; △ disturbed by other programs; ‖ 12 timed steps"
    )
    assert axis.get_xlabel().replace("\n", " ") == text and max(map(len, axis.get_xlabel().split("\n"))) < 50


def test_many_have_axes_of_their_own_in_front_of_all_others(
    crowd: tuple[Path, Sequence[int]], crowd_plots: dict[str, Plot]
) -> None:
    sweep, workers = crowd
    report = reports.load(sweep)
    labels = lay_out_runs(report.runs).labels
    figures = {name: plot.figure for name, plot in crowd_plots.items()}
    for name in CURVES[:3]:
        axes = figures[name].axes
        assert len(axes) == len(labels) * len(workers)
        assert len({axis.get_ylim() for axis in axes}) == 1 and len({axis.get_xlim() for axis in axes}) <= len(workers)
        for place, axis in enumerate(axes[: len(labels)]):
            grey, black, *_ = (artist for artist in axis.collections if isinstance(artist, LineCollection))
            colours = [matplotlib.colors.to_hex(lines.get_color()[0]).upper() for lines in (grey, black)]
            assert colours == [style.BACKDROP, style.BLACK]
            assert (len(grey.get_segments()), len(black.get_segments())) == (len(labels) - 2, 1), "svd has no curve"
            assert " ".join(axis.get_title(loc="left").split()) == labels[place]
            if labels[place] == "svd":
                assert not mean_lines(axis)[0].get_segments() and [text.get_text() for text in axis.texts] == [
                    "pending"
                ]
            else:
                y = np.asarray(mean_lines(axis)[0].get_segments()[0])[:, 1]
                assert axis.get_title(loc="right") == format_number(y[-1]) and len(y) == 3
    if len(workers) > 1:
        (legend,) = figures["throughput"].legends
        assert [text.get_text() for text in legend.get_texts()][:2] == ["none", "all others"]
        assert len(figures["throughput"].axes) == len(labels)
        assert {axis.get_ylim() for axis in figures["throughput"].axes} == {figures["throughput"].axes[0].get_ylim()}


def test_pictures_of_many_grow_in_height_alone(crowd_plots: dict[str, Plot], nine_plots: dict[str, Plot]) -> None:
    for name in (*CURVES[:2], "breakdown"):
        plot = crowd_plots[name]
        assert plot.figure.get_figwidth() == nine_plots[name].figure.get_figwidth()
        assert plot.figure.get_figheight() > nine_plots[name].figure.get_figheight()


def test_infinite_and_lost_numbers_are_not_drawn(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config()])
    (directory,) = (sweep / run_directory.RUNS).iterdir()
    lines = (directory / run_directory.EPOCHS).read_text().splitlines()
    place = csv_columns.EPOCH_COLUMNS.index("test_accuracy")
    for line, value in ((3, "nan"), (4, "inf"), (5, ""), (6, "-inf")):
        cells = lines[line].split(",")
        lines[line] = ",".join([*cells[:place], value, *cells[place + 1 :]])
    (directory / run_directory.EPOCHS).write_text("\n".join(lines) + "\n")
    for name in CURVES[:3]:
        (axis,) = drawn(sweep, name)[name].figure.axes
        (lines_drawn,) = mean_lines(axis)
        assert len(lines_drawn.get_segments()[0]) == 11 and np.isfinite(axis.get_ylim()).all()


def test_pictures_are_written_whole_and_in_the_width_of_a_column_or_two(
    nine_plots: dict[str, Plot], tmp_path: Path
) -> None:
    for name, inches in (("throughput", 3.5), ("accuracy_time", 7.2)):
        plot = nine_plots[name]
        path = plot.save(tmp_path).get_path(tmp_path)
        height, width, _ = matplotlib.image.imread(path).shape
        assert width == 200 * inches and height > 400
        assert f'width="{72 * inches:g}pt"' in plot.get_path(tmp_path, "svg").read_text()
        assert f"/MediaBox [ 0 0 {72 * inches:g} ".encode() in plot.get_path(tmp_path, "pdf").read_bytes()
    for plot in nine_plots.values():
        assert len(plot.alt) > 40 and plot.title
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"{name}.{suffix}" for name in ("throughput", "accuracy_time") for suffix in PICTURES}
    assert "none, 2 workers: " in nine_plots["throughput"].alt


def test_files_are_the_same_bytes_with_text_and_fonts_in_them(nine: Path, tmp_path: Path) -> None:
    written = []
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        drawn(nine, "throughput")["throughput"].save(tmp_path / attempt)
        written.append({path.name: path.read_bytes() for path in (tmp_path / attempt).iterdir()})
    assert written[0] == written[1]
    assert b">qsgd</text>" in written[0]["throughput.svg"]
    assert b"/FontFile2" in written[0]["throughput.pdf"] and b"/Type3" not in written[0]["throughput.pdf"]
    for content in written[0].values():
        assert b"Date" not in content and not re.search(rb"20\d\d-\d\d-\d\d", content)


def test_a_compressor_has_the_same_colour_in_every_sweep() -> None:
    alone = {name: style.choose_looks([name])[name] for name in ("none", "qsgd", "svd", "topk", "of-my-own")}
    together = style.choose_looks(["of-my-own", "topk", "svd", "none", "qsgd"])
    assert together == alone
    assert len({look.colour for name, look in alone.items() if name != "of-my-own"}) == 4
    assert alone["qsgd"].colour == style.BLUE and alone["none"].colour == style.BLACK
    assert set(style.PHASES) == {*csv_columns.PHASES, "other"} and len(set(style.PHASES.values())) == 8


def test_the_compressors_that_are_known_are_told_apart() -> None:
    looks = style.choose_looks([*style._KNOWN, "none"])
    assert len({look.colour for look in looks.values()}) == len(looks)


def test_nobody_has_the_colour_of_a_compressor_beside_it_while_there_are_others() -> None:
    known = {name: style.choose_looks([name])[name] for name in ("powersgd", "onebit", "qsgd")}
    looks = style.choose_looks(["none", *known, "int8", "atomo", "redsync", "sidco", "gtopk", "a", "b", "c"])
    assert known.items() <= looks.items(), "what is known is not moved"
    assert len({look.colour for look in looks.values()}) == len(looks) == 12


def test_variants_share_a_colour_and_differ() -> None:
    looks = style.choose_looks(["qsgd levels=1", "qsgd levels=7", "qsgd levels=127"])
    assert looks["qsgd levels=1"].colour == style.BLUE
    assert len({look.colour for look in looks.values()}) == len({look.marker for look in looks.values()}) == 3


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("high", [3e6, 2e7, 6e7, 9e7])
def test_names_of_ticks_have_room(columns: int, high: float) -> None:
    with matplotlib.rc_context(fname=style.STYLE):
        figure = Figure(figsize=(3.5 if columns == 1 else 7.2, 2.5))
        axis = figure.subplots(1, columns, squeeze=False)[0, 0]
        axis.set(xscale="log", xlim=(1e6, high))
        axis.xaxis.set_major_formatter(EngFormatter("B"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        label_more_ticks(axis)
        FigureCanvasAgg(figure).draw()
    shown = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in shown if axis.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axis.bbox.x1 + 1)
    assert len(boxes) >= 2
    assert all(before[1] < after[0] for before, after in itertools.pairwise(boxes))


def test_labels_are_moved_apart_as_little_as_possible() -> None:
    assert _spread_heights([0, 50, 100], 0, 100, gap=10) == [0, 50, 100]
    assert _spread_heights([48, 50, 52], 0, 100, gap=10) == pytest.approx([40, 50, 60])
    assert _spread_heights([1, 1], 0, 100, gap=10) == pytest.approx([0, 10]), "not below the axis"
    assert _spread_heights([0, 49, 51, 90], 0, 100, gap=10) == pytest.approx([0, 45, 55, 90])
    assert _spread_heights([96, 97, 98], 0, 100, gap=10) == pytest.approx([80, 90, 100]), (
        "not above it, where the title is"
    )
    assert _spread_heights([1, 2, 3], 5, 15, gap=10) == pytest.approx([-5, 5, 15]), "too many: rather below it"


def one_plot() -> Plot:
    return Plot("one", "One", "", Figure(figsize=(1, 1)))


def save_all(makers: Mapping[str, Maker], directory: Path, formats: Sequence[str] = PICTURES) -> dict[Path, Picture]:
    with Drawing(makers, directory, formats) as drawing:
        return drawing.finish()


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """It is drawn in another process."""
    with pytest.raises(FileNotFoundError):
        save_all({"one": one_plot}, tmp_path / "none")
    (path,) = save_all({"one": one_plot}, tmp_path)
    assert path == tmp_path / "one.png" and path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_whose_process_was_killed_is_drawn_all_the_same(tmp_path: Path) -> None:
    here = os.getpid()

    def killed_elsewhere() -> Plot:
        if os.getpid() != here:
            os._exit(1)
        return one_plot()

    assert list(save_all({"one": killed_elsewhere}, tmp_path, ["png"])) == [tmp_path / "one.png"]


@pytest.fixture
def handled() -> Iterator[None]:
    """A SIGTERM that is noted and no more, as launchers have it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handled")
def test_no_drawing_outlives_a_failure(tmp_path: Path) -> None:
    def never() -> Plot:
        time.sleep(600)
        return one_plot()

    with pytest.raises(ZeroDivisionError), Drawing({"one": never}, tmp_path) as drawing:
        ((fork, _),) = drawing._forks
        raise ZeroDivisionError
    assert not fork.is_alive() and not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys, time
from pathlib import Path
from matplotlib.figure import Figure
from reports.plots.picture import Drawing, Plot

def slow(name):
    time.sleep(0.5)
    return Plot(name, name, "", Figure(figsize=(1, 1)))

makers = {str(place): lambda name=str(place): slow(name) for place in range(200)}
with Drawing(makers, Path(sys.argv[1]), ["png"]) as drawing:
    print("drawing", flush=True)
    time.sleep(600)
"""


def test_no_drawing_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "drawing\n"
        process.kill()
        assert process.stdout.read() == "", "which the forks have, too: it ends when they have ended"
    assert len(list(tmp_path.iterdir())) < 10


def test_formats_that_are_there_are_kept_up_to_date(tmp_path: Path) -> None:
    save_all({"one": one_plot, "two": lambda: dataclasses.replace(one_plot(), name="two")}, tmp_path, ["png"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "two.png"]
    (tmp_path / "one.svg").write_text("of other runs")
    save_all({"one": one_plot}, tmp_path, ["png"])
    assert (tmp_path / "one.svg").read_text().startswith("<?xml") and not (tmp_path / "one.pdf").exists()


def test_a_picture_with_nothing_to_show_is_not_there(tmp_path: Path) -> None:
    save_all({"one": one_plot}, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert save_all({"one": lambda: None}, tmp_path) == {} and not list(tmp_path.iterdir())
