"""Means and intervals over seeds, fronts, and plots that are made only where something was swept."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import reports
from gradsweep import run_directory
from reports.analysis.grid import lay_out_runs
from reports.analysis.statistics import compute_band, stretch_band, summarize
from reports.plots import curves, style
from reports.plots.layout import lay_out_panels as panels_of
from reports.plots.lines import MAX_LINES, collect_points, make_lines, make_outline
from reports.plots.pareto import find_front
from reports.plots.picture import Plot
from reports.plots.sweep_plots import list_makers
from reports.plots.swept import _place_values, find_swept_keys
from tests.reports import fabricate
from tests.reports.plots.test_plots import drawn, mean_lines

SEEDS = 3


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compressors, two numbers of workers, three seeds; one run failed."""
    grid = [fabricate.config(c, w, seed=s, epochs=4) for c in ("none", "svd") for w in (2, 4) for s in range(SEEDS)]
    sweep = fabricate.sweep(tmp_path_factory.mktemp("seeds") / "s", grid[:-1])
    fabricate.run(sweep, grid[-1], run_directory.FAILED)
    return sweep


def test_a_curve_is_the_mean_over_seeds_with_its_interval(seeds: Path) -> None:
    report = reports.load(seeds)
    figure = drawn(seeds, "accuracy_epoch")["accuracy_epoch"].figure
    for axis, workers in zip(figure.axes, (2, 4), strict=True):
        runs = report.runs[(report.runs["compressor"] == "none") & (report.runs["workers"] == workers)]["run"]
        values = [report.epochs[report.epochs["run"] == run]["test_accuracy"].to_numpy() * 100 for run in runs]
        mean, low, high = compute_band(np.array(values))
        (segment,) = mean_lines(axis)[0].get_segments()
        assert np.asarray(segment)[:, 1] == pytest.approx(mean)
        area = next(artist for artist in axis.collections if not isinstance(artist, LineCollection))
        edge = area.get_paths()[0].vertices[:, 1]
        assert edge.min() == pytest.approx(low.min()) and edge.max() == pytest.approx(high.max())
    notes = figure.legends[0].get_title().get_text()
    assert notes == "mean of 2 to 3 seeds, band: 95 % interval"


def test_a_run_that_is_not_done_is_a_line_of_its_own(seeds: Path) -> None:
    axis = drawn(seeds, "accuracy_epoch")["accuracy_epoch"].figure.axes[1]
    assert [len(lines.get_segments()) for lines in mean_lines(axis)] == [1, 2]
    assert [line for line in axis.lines if line.get_marker() == "x"]


def test_times_are_interpolated_where_all_seeds_have_been() -> None:
    runs = pd.DataFrame({"sweep": "s", "run": ["a", "b"], "label": "l", "cell": 0, "status": run_directory.DONE})
    points = {("s", "a"): np.array([[1.0, 10], [2, 20], [3, 30]]), ("s", "b"): np.array([[2.0, 0], [4, 20]])}
    (line,) = make_lines(runs, points)["l"]
    assert line.x.tolist() == [2, 3] and line.y.tolist() == [10, 20]
    low, high = (summarize([20.0, 0.0]).low, summarize([30.0, 10.0]).high)
    assert line.low is not None and line.high is not None
    assert (line.low[0], line.high[1]) == pytest.approx((low, high))


def test_many_lines_and_long_ones_are_summed_up() -> None:
    count = MAX_LINES + 61
    names, cells = [str(n) for n in range(count)], range(count)
    runs = pd.DataFrame({"sweep": "s", "run": names, "label": "l", "cell": cells, "status": run_directory.DONE})
    x = np.arange(1.0, 100_001)
    points = {("s", str(n)): np.column_stack([x, np.full(len(x), float(n))]) for n in range(count)}
    (line,) = make_lines(runs, points)["l"]
    assert len(line.x) == 200 and (line.x[0], line.x[-1]) == (1, 100_000)
    assert line.low is not None and line.high is not None
    assert (line.low[0], line.y[0], line.high[0]) == pytest.approx((10, 50, 90))
    some = make_lines(runs[:MAX_LINES], points)["l"]
    assert len(some) == MAX_LINES
    (behind,) = make_outline(some)
    assert behind.shape == (40, 2) and set(behind[:, 1]) == {(MAX_LINES - 1) / 2}


def test_points_of_runs_are_apart_also_where_sweeps_have_the_same_names() -> None:
    frame = pd.DataFrame(
        {"sweep": ["a", "a", "b"], "run": ["r", "r", "r"], "epoch": [1, 2, 1], "loss": [3.0, np.inf, 4]}
    )
    found = collect_points(frame.astype({"sweep": "category", "run": "category"}), "epoch", "loss")
    assert {run: line.tolist() for run, line in found.items()} == {("a", "r"): [[1, 3]], ("b", "r"): [[1, 4]]}


def test_intervals_on_a_logarithmic_axis_are_factors_around_the_mean(tmp_path: Path) -> None:
    grid = [fabricate.config(seed=seed, epochs=3) for seed in range(2)]
    sweep = fabricate.sweep(tmp_path / "s", grid)
    report = reports.load(sweep)
    losses = [5.0, 1, 0.1] + [4.0, 0.01, 0.1]
    epochs = report.epochs.sort_values(["run", "epoch"]).assign(test_loss=losses, train_loss=losses)
    layout = panels_of(lay_out_runs(report.runs), lay_out_runs(report.runs).runs, ["workers"])
    plot = curves.plot_curves(layout, epochs, curves.EPOCH, curves.LOSS)
    assert plot is not None
    (axis,) = plot.figure.axes
    mean, low, high = compute_band(np.array([[5.0, 1, 0.1], [4.0, 0.01, 0.1]]))
    assert low[1] < 0, "there is an interval that a logarithmic axis has no room for"
    ends = stretch_band(mean, low, high)
    assert ends[0] == pytest.approx(mean**2 / ends[1]) and (ends[0] > 0).all()
    (band,) = (each for each in axis.collections if isinstance(each, PolyCollection))
    assert sorted(set(band.get_paths()[0].vertices[:, 1])) == pytest.approx(sorted({*ends[0], *ends[1]}))
    assert axis.get_yscale() == "log" and axis.get_ylim() == pytest.approx((0.1 / 3, 4.5 * 3))


def test_error_bars_are_the_intervals(seeds: Path) -> None:
    figure = drawn(seeds, "throughput")["throughput"].figure
    (axis,) = figure.axes
    runs = reports.load(seeds).runs
    none = runs[(runs["compressor"] == "none") & (runs["status"] == run_directory.DONE)]
    _, bars, *_ = (artist for artist in axis.collections if isinstance(artist, LineCollection))
    for workers, segment in zip((2, 4), bars.get_segments(), strict=True):
        cell = summarize(none[none["workers"] == workers]["iterations_per_second"])
        assert np.asarray(segment)[:, 1] == pytest.approx([cell.low, cell.high])
    assert figure.legends[0].get_title().get_text().startswith("mean of 2 to 3 seeds, bars")


def test_the_front_is_of_those_that_none_beats() -> None:
    speed, accuracy = np.array([1.0, 2, 3, 3, 2]), np.array([9.0, 8, 5, 6, 7])
    assert find_front(speed, accuracy, True).tolist() == [True, True, False, True, False]
    assert find_front(speed, accuracy, False).tolist() == [True, False, False, False, False]


@pytest.mark.thorough
def test_pareto_marks_the_front_and_names_the_points(seeds: Path) -> None:
    made = drawn(seeds, "pareto_throughput", "pareto_bytes")
    for plot in made.values():
        for axis in plot.figure.axes:
            assert {"none", "svd"} <= {text.get_text() for text in axis.texts}
            *others, front = axis.lines
            assert front.get_drawstyle().startswith("steps"), "stairs, to the edges of the axes"
            best = {tuple(point) for point in np.asarray(front.get_xydata()).tolist()[1:-1]}
            dark = {
                tuple(p) for line in others if line.get_alpha() == 1 for p in np.asarray(line.get_xydata()).tolist()
            }
            assert dark == best
    assert "On the front: 2 workers: " in made["pareto_bytes"].alt
    # svd sends less and is less accurate
    assert "2 workers: none and svd" in made["pareto_bytes"].alt


def test_few_points_make_no_front(tmp_path: Path) -> None:
    assert not drawn(fabricate.sweep(tmp_path / "s", [fabricate.config()]), "pareto_bytes")


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learning rates by sizes of the batch, two seeds; one cell failed."""
    grid = [
        fabricate.config("qsgd", 2, seed=s, epochs=3, optimizer__lr=lr, batch__size=size)
        for lr in (0.01, 0.1, 1.0)
        for size in (64, 128)
        for s in range(2)
    ]
    sweep = fabricate.sweep(tmp_path_factory.mktemp("rates") / "s", grid[:-2])
    for config in grid[-2:]:
        fabricate.run(sweep, config, run_directory.FAILED)
    return sweep


def test_a_heat_map_has_the_mean_of_each_cell(rates: Path) -> None:
    plot = drawn(rates, "heatmap_accuracy")["heatmap_accuracy"]
    axis, bar = plot.figure.axes
    means = reports.load(rates).runs.groupby(["batch.size", "optimizer.lr"])["accuracy"].mean() * 100
    gaps = reports.load(rates).runs.groupby(["batch.size", "optimizer.lr"])["accuracy"].std() * 100
    halves = gaps * 12.706 / np.sqrt(2)
    shown = {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in axis.texts}
    for y, size in enumerate((64, 128)):
        for x, lr in enumerate((0.01, 0.1, 1.0)):
            failed = (size, lr) == (128, 1.0)
            mean, _, half = shown[y, x].partition("\n± ")
            assert mean == "failed" if failed else float(mean) == pytest.approx(means[size, lr], abs=0.06)
            assert failed or float(half) == pytest.approx(halves[size, lr], rel=0.5, abs=0.06)
    low, high = bar.get_ylim()
    assert high - low >= 10 * np.median(halves.drop((128, 1.0))) * (1 - 1e-9), "wider than the noise"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0.01", "0.1", "1"]
    assert (axis.get_xlabel(), plot.figure.get_supylabel()) == ("optimizer.lr", "batch.size")


def test_options_of_a_single_compressor_are_keys(tmp_path: Path) -> None:
    options = [{"compressor__levels": n, "compressor__bucket_size": b} for n in (3, 7) for b in (64, 512)]
    grid = lay_out_runs(
        reports.load(fabricate.sweep(tmp_path / "s", [fabricate.config("qsgd", **o) for o in options])).runs
    )
    assert set(find_swept_keys(grid)) == {"compressor.levels", "compressor.bucket_size"}


def test_only_what_was_swept_has_a_heat_map_and_parallel_coordinates(nine: Path, rates: Path) -> None:
    names = ("heatmap_accuracy", "heatmap_throughput", "parallel")
    assert not drawn(nine, *names), "the tables and other plots show compressors and workers"
    assert set(drawn(rates, *names)) == set(names)


def test_parallel_coordinates_have_a_line_for_each_cell(rates: Path) -> None:
    plot = drawn(rates, "parallel")["parallel"]
    (axis,) = plot.figure.axes
    (lines,) = (artist for artist in axis.collections if isinstance(artist, LineCollection))
    assert [len(segment) for segment in lines.get_segments()] == [4] * 5
    runs = reports.load(rates).runs
    accuracy = (
        runs[runs["status"] == run_directory.DONE].groupby(["batch.size", "optimizer.lr"])["accuracy"].mean() * 100
    )
    assert sorted(np.asarray(lines.get_array())) == pytest.approx(sorted(accuracy))
    words = [text.get_text() for text in axis.texts]
    assert {"batch.size", "optimizer.lr", "accuracy [%]", "64", "128", "0.01", "0.1", "1"} <= set(words)
    assert "1 cell without a result" in everything(plot.figure)


def test_axes_of_parallel_coordinates_suit_their_values() -> None:
    at, ticks = _place_values(["b", "a", "c"], False)
    assert at.tolist() == [0.5, 0, 1] and [text for _, text in ticks] == ["a", "b", "c"]
    at, ticks = _place_values([10.0**n for n in range(-4, 7)], False)
    assert at.tolist() == pytest.approx([n / 10 for n in range(11)]), "logarithmic"
    at, _ = _place_values([float(n) for n in range(1, 12)], False)
    assert at.tolist() == pytest.approx([n / 10 for n in range(11)])


def test_consensus_distance_is_drawn_where_it_was_measured(seeds: Path) -> None:
    report = reports.load(seeds)
    grid = lay_out_runs(report.runs)
    assert not [name for name in list_makers(grid, report.epochs, report.profile) if name.startswith("consensus")]
    epochs = report.epochs.assign(consensus_distance=lambda rows: 1 / rows["epoch"].astype("float64") ** 4)
    with matplotlib.rc_context(fname=style.STYLE):
        made = {name: make() for name, make in list_makers(grid, epochs, report.profile).items() if "consensus" in name}
    assert set(made) == {"consensus_epoch", "consensus_bytes"}
    plot = made["consensus_epoch"]
    assert plot and plot.figure.axes[0].get_yscale() == "log"
    (segment,) = mean_lines(plot.figure.axes[0])[0].get_segments()
    assert np.asarray(segment)[:, 1] == pytest.approx([1 / n**4 for n in range(1, 5)])


def test_what_was_never_measured_has_no_plot(seeds: Path) -> None:
    report = reports.load(seeds)
    grid = lay_out_runs(report.runs)
    layout = panels_of(grid, grid.runs, ["workers"])
    for values in (np.nan, 0.0):
        profile = report.profile.assign(memory_norm=values)
        assert curves.plot_curves(layout, profile, curves.STEP, curves.MEMORY) is None


def test_training_is_dashed_beside_the_test_set(seeds: Path) -> None:
    report = reports.load(seeds)
    axis = drawn(seeds, "loss_epoch")["loss_epoch"].figure.axes[0]
    dashed = [lines for lines in axis.collections if isinstance(lines, LineCollection) and lines.get_zorder() == 1.8]
    runs = report.runs.query("compressor == 'none' and workers == 2")["run"]
    expected = report.epochs[report.epochs["run"].isin(runs)].groupby("epoch")["train_loss"].mean()
    assert np.asarray(dashed[0].get_segments()[0])[:, 1] == pytest.approx(list(expected))
    assert dashed[0].get_linestyle()[0][1] is not None


def everything(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text().split()) for text in figure.findobj(Text))


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    names = ['"><script>alert(1)</script>', "日本 $x_1$ & %", "a very long name of a compressor that goes on and on"]
    sweep = fabricate.sweep(tmp_path / "s", [])
    for number, name in enumerate(names):
        fabricate.run(sweep, fabricate.config(name, 2, epochs=3), name=str(number))
    plot: Plot = drawn(sweep, "pareto_bytes")["pareto_bytes"]
    plot.save(tmp_path)
    text = plot.get_path(tmp_path, "svg").read_text()
    assert "<script" not in text and "&lt;script" in text and "$x_1$" in text
