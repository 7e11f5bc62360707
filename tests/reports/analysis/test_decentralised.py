"""Reports of decentralised algorithms: what is compared with what, and how far workers' models are apart."""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

import reports
from gradsweep import csv_columns, run_directory
from reports.analysis.grid import Grid, lay_out_runs
from reports.building.sweep_report import read_report
from reports.exports import runs as exports
from reports.page import cells
from reports.plots import layout, style
from reports.plots.picture import Plot
from reports.plots.sweep_plots import list_makers
from reports.tables.sweep_tables import build_tables, write_headline
from tests.reports import fabricate

SWEPT = ("algorithm", "topology", "compressor", "workers")
LABELS = ["sgd", "choco", "dpsgd", "sgd topk", "choco topk", "dpsgd topk"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricate.methods(tmp_path_factory.mktemp("output") / "2026-11-22" / "methods")


@pytest.fixture(scope="module")
def grid(sweep: Path) -> Grid:
    return lay_out_runs(reports.load(sweep).runs, SWEPT)


def grid_of(directory: Path, *kinds: tuple[str, str, str], swept: tuple[str, ...] = SWEPT) -> Grid:
    """Of runs with 4 workers by algorithm, topology and compressor."""
    configs = {repr(one): one for kind in kinds for one in [fabricate.of_method(*kind, 4)]}
    return lay_out_runs(reports.load(fabricate.sweep(directory / "sweep", configs.values())).runs, swept)


def drawn(sweep: Path, *names: str) -> dict[str, Plot]:
    report = reports.load(sweep)
    found = list_makers(lay_out_runs(report.runs, SWEPT), report.epochs, report.profile)
    with matplotlib.rc_context(fname=style.STYLE):
        made = {name: found[name]() for name in names if name in found}
    return {name: plot for name, plot in made.items() if plot}


def test_tables_have_a_column_for_each_and_the_centralised_ones_first(grid: Grid) -> None:
    assert grid.keys == ("algorithm", "topology") and grid.labels == ["none", "topk"]
    (accuracy,) = (table for table in build_tables(grid) if table.name == "accuracy")
    names = [tuple(cell.text for cell in row[:3]) for row in accuracy.rows]
    assert names[0] == ("none", "sgd", "none") and names[5] == ("topk", "sgd", "none") and len(names) == 10
    assert write_headline(grid).startswith("20 runs of 2 compressors and 3 algorithms with 4 and 8 workers: 20 done.")


def test_plots_name_algorithm_and_compressor_together(grid: Grid) -> None:
    methods = grid.by_method
    assert methods.labels == LABELS and methods.keys == ("topology",)
    assert list(methods.runs["cell"]) == list(grid.runs["cell"]), "the same rows"
    looks = style.choose_looks(methods.labels)
    assert looks["sgd"].colour == style.BLACK and len({look.colour for look in looks.values()}) == 6


def test_few_lines_have_the_topology_in_their_name(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, ("sgd", "", "topk"), *(("choco", one, "topk") for one in ("ring", "torus", "star")))
    methods = grid.by_method
    assert sorted(methods.labels) == ["choco/ring topk", "choco/star topk", "choco/torus topk", "sgd topk"]
    assert methods.keys == () and len({look.colour for look in style.choose_looks(methods.labels).values()}) == 4


def test_topologies_of_one_algorithm_are_lines_too(tmp_path: Path) -> None:
    kinds = [("choco", topology, name) for topology in ("ring", "torus") for name in ("none", "topk")]
    assert grid_of(tmp_path, *kinds).by_method.labels == ["ring", "torus", "ring topk", "torus topk"]


def test_without_algorithms_nothing_has_another_name(nine: Path) -> None:
    grid = lay_out_runs(reports.load(nine).runs)
    assert grid.by_method is grid


def test_centralised_runs_are_in_the_panel_of_every_topology(grid: Grid) -> None:
    methods = grid.by_method
    found = layout.lay_out_panels(methods, methods.runs, ["workers"])
    assert [title for title, _ in found.panels] == [
        f"topology={topology}\n{workers} workers" for topology in ("ring", "torus") for workers in (4, 8)
    ]
    for _, runs in found.panels:
        assert sorted(runs["label"]) == sorted(LABELS)
        assert runs["workers"].nunique() == 1 and runs["topology" if "topology" in runs else "cell"].size == 6
    assert len(found.get_measured_runs()) == 20, "each once, whatever it is compared with"
    assert not set(found.drop_central().looks) & {"sgd", "sgd topk"}


def test_centralised_runs_alone_are_a_panel_of_their_own(tmp_path: Path) -> None:
    configs = [fabricate.of_method("choco", topology, "none", 4) for topology in ("ring", "torus")]
    configs += [fabricate.of_method("choco", "ring", name, 4) for name in ("qsgd", "svd", "topk", "sign", "natural")]
    configs += [fabricate.of_method("choco", "torus", name, 4) for name in ("qsgd", "svd")]
    configs += [fabricate.of_method("sgd", "", "none", workers) for workers in (4, 8)]
    methods = lay_out_runs(reports.load(fabricate.sweep(tmp_path / "sweep", configs)).runs, SWEPT).by_method
    assert methods.keys == ("topology",)
    panels = layout.lay_out_panels(methods, methods.runs, ["workers"]).panels
    assert [(title, "sgd" in set(runs["label"])) for title, runs in panels] == [
        ("topology=none\n8 workers", True),
        ("topology=ring\n4 workers", True),
        ("topology=torus\n4 workers", True),
    ]


def test_at_equal_bytes_algorithms_are_compared_with_each_other(sweep: Path, grid: Grid) -> None:
    (equal,) = (t for t in build_tables(grid, reports.load(sweep).epochs) if t.name == "accuracy_equal_bytes")
    at = {record["at"] for record in equal.records}
    assert len(at) == 1, "one number of bytes, that of the cheapest, for all algorithms and topologies"


def test_a_centralised_baseline_is_compared_with_every_topology(sweep: Path) -> None:
    built = read_report([sweep], sweep, against={"algorithm": "sgd"})
    runs = built.report.runs.set_index(["algorithm", "topology", "compressor", "workers"])
    (speedup,) = (table for table in built.tables if table.name == "speedup")
    assert speedup.title == "Speed-up over algorithm=sgd at equal other keys"
    for record in speedup.records:
        key = (record["algorithm"], record["topology"], record["compressor"], int(record["workers"]))
        own = runs.loc[key, "iterations_per_second"]
        other = runs.loc[("sgd", "none", *key[2:]), "iterations_per_second"]
        assert record["mean"] == pytest.approx(own / other)


def test_algorithms_with_a_compressor_each_are_compared_with_centralised_sgd(tmp_path: Path, sweep: Path) -> None:
    kinds = [("sgd", "none", "none"), ("dpsgd", "ring", "none"), ("choco", "ring", "topk")]
    directory = fabricate.sweep(
        tmp_path / "sweep",
        [fabricate.of_method(*kind, 4) for kind in kinds],
        swept=["algorithm", "topology", "workers"],
    )
    built = read_report([directory], directory)
    runs = built.report.runs.set_index("algorithm")["iterations_per_second"]
    (speedup,) = (table for table in built.tables if table.name == "speedup")
    found = {record["algorithm"]: record["mean"] for record in speedup.records}
    assert found == pytest.approx({name: runs[name] / runs["sgd"] for name in ("sgd", "dpsgd", "choco")})
    assert read_report([sweep], sweep).against == {"compressor": "none"}, "where each has a partner without compression"


def test_tables_of_local_models_are_there_where_some_run_has_them(sweep: Path, grid: Grid, nine: Path) -> None:
    names = {"accuracy_local", "accuracy_least", "consensus", "spectral_gap"}
    found = {table.name: table for table in build_tables(grid)}
    assert names <= set(found) and not names & {
        table.name for table in build_tables(lay_out_runs(reports.load(nine).runs))
    }
    sgd, choco, *_ = found["accuracy_local"].rows
    assert [cell.text for cell in sgd[3:]] == ["one model", "one model"]
    with (Path(grid.runs["directory"].iloc[2]) / run_directory.EPOCHS).open() as file:
        last = float(list(csv.DictReader(file))[-1]["local_test_accuracy"])
    assert choco[3].value == pytest.approx(last)
    titles = [column.name for column in found["runs"].columns]
    assert {"own models", "worst of them", "consensus", "spectral gap"} <= set(titles)
    (plain,) = (table for table in build_tables(lay_out_runs(reports.load(nine).runs)) if table.name == "runs")
    assert not {"own models", "consensus"} & {column.name for column in plain.columns}


def test_a_run_without_result_is_known_by_its_epochs(tmp_path: Path) -> None:
    directory = fabricate.sweep(tmp_path / "sweep", [fabricate.of_method("choco", "ring", "topk", 4)])
    (run,) = (directory / run_directory.RUNS).iterdir()
    whole = reports.load(directory).runs.iloc[0]
    (run / run_directory.RESULT).unlink()
    again = reports.load(directory).runs.iloc[0]
    for name in ("local_accuracy", "local_accuracy_least", "consensus_distance"):
        assert again[name] == whole[name] > 0


def full_lines(axis: Axes) -> list[np.ndarray]:
    return [
        line
        for artist in axis.collections
        if isinstance(artist, LineCollection) and artist.get_linestyle()[0][1] is None
        for line in artist.get_segments()
    ]


def test_own_models_are_beside_the_averaged_one(sweep: Path, grid: Grid) -> None:
    plot = drawn(sweep, "local_accuracy_epoch")["local_accuracy_epoch"]
    ring = plot.figure.axes[0]
    dashed = [
        artist
        for artist in ring.collections
        if isinstance(artist, LineCollection) and artist.get_linestyle()[0][1] is not None and artist.get_segments()
    ]
    bands = [artist for artist in ring.collections if isinstance(artist, PolyCollection)]
    assert len(full_lines(ring)) == 6 and len(dashed) == len(bands) == 4, "the centralised ones have one model"
    runs = grid.runs[(grid.runs["topology"] == "ring") & (grid.runs["workers"] == 4)]
    with (Path(runs["directory"].iloc[0]) / run_directory.EPOCHS).open() as file:
        rows = list(csv.DictReader(file))
    expected = [100 - 100 * float(row["local_test_accuracy"]) for row in rows]
    assert any(np.allclose(line.get_segments()[0][:, 1], expected) for line in dashed)
    least = min(float(row["local_test_accuracy_least"]) for row in rows)
    assert any(np.isclose(band.get_paths()[0].vertices[:, 1].max(), 100 - 100 * least) for band in bands), "errors"


def test_the_consensus_distance_is_of_those_who_can_differ(sweep: Path, nine: Path) -> None:
    found = drawn(sweep, "consensus_epoch", "consensus_bytes")
    for plot in found.values():
        assert len(plot.figure.axes) == 4 and all(len(full_lines(axis)) == 4 for axis in plot.figure.axes)
        assert not any("not measured" in text.get_text() for axis in plot.figure.axes for text in axis.texts)
        assert plot.figure.axes[0].get_yscale() == "log"
    assert "choco" in found["consensus_epoch"].alt
    assert not drawn(nine, "consensus_epoch", "local_accuracy_epoch")


def test_no_distance_at_all_is_named_at_the_foot_of_a_logarithmic_axis(tmp_path: Path) -> None:
    configs = [fabricate.of_method("dpsgd", topology, "none", 8) for topology in ("ring", "complete")]
    configs += [fabricate.of_method("choco", "ring", "topk", 8)]
    sweep = fabricate.sweep(tmp_path / "sweep", configs)
    plot = drawn(sweep, "consensus_epoch")["consensus_epoch"]
    (axis,) = plot.figure.axes
    assert axis.get_yscale() == "log" and axis.get_ylim()[0] > 0
    assert "dpsgd/complete: 0" in [text.get_text() for text in axis.texts]
    plot.figure.canvas.draw()
    alone = fabricate.sweep(tmp_path / "zeros", configs[1:2])
    (axis,) = drawn(alone, "consensus_epoch")["consensus_epoch"].figure.axes
    assert axis.get_yscale() == "linear"


def test_a_heat_map_says_nothing_of_what_cannot_be(sweep: Path) -> None:
    plot = drawn(sweep, "heatmap_accuracy")["heatmap_accuracy"]
    texts = [text.get_text() for axis in plot.figure.axes for text in axis.texts]
    assert "missing" not in texts and sum(bool(text) for text in texts) == 20


def test_the_page_compares_with_centralised_runs(sweep: Path, grid: Grid) -> None:
    report = reports.load(sweep)
    found = cells.collect_cells(grid.by_method, report.epochs, report.profile)
    assert [cell["label"] for cell in found if cell.get("central")] == ["sgd", "sgd", "sgd topk", "sgd topk"]
    choco = next(cell for cell in found if cell["label"] == "choco topk")
    assert choco["keys"] == ["ring"] and {"local_accuracy", "consensus_distance"} <= set(choco["values"])
    assert {"local_test_accuracy", "consensus_distance"} <= set(choco["curve"])
    single = cells.collect_run_curves(grid, report.epochs)["curves"]
    assert all("local_test_accuracy" in curve for curve in single.values())


def test_the_page_of_others_has_nothing_of_it(nine: Path) -> None:
    report = reports.load(nine)
    grid = lay_out_runs(report.runs)
    assert not any("central" in cell for cell in cells.collect_cells(grid, report.epochs, report.profile))
    (curve, *_) = cells.collect_run_curves(grid, report.epochs)["curves"].values()
    assert not {"local_test_accuracy", "consensus_distance"} & set(curve)


def test_exports_have_the_columns(sweep: Path, nine: Path) -> None:
    def names(directory: Path) -> tuple[set[str], set[str]]:
        run = next(
            one for one in exports.read_ended_runs(reports.load(directory)) if one.options.get("algorithm") != "sgd"
        )
        return {name for point in run.read() for name in point.values}, set(run.results)

    points, results = names(sweep)
    assert {f"epoch/{name}" for name in csv_columns.LOCAL_EPOCH_COLUMNS} <= points
    assert {
        f"result/{name}" for name in ("local_accuracy", "consensus_distance", "spectral_gap", "messages_per_step")
    } <= results
    points, results = names(nine)
    assert not {f"epoch/{name}" for name in csv_columns.LOCAL_EPOCH_COLUMNS} & points
    assert "result/consensus_distance" not in results
