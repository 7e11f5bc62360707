"""Runs on texts in tables, pictures and on the page: their samples are tokens, and a least loss may be known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

import reports
from gradsweep.run_directory import RESULT
from reports.analysis.grid import Grid, lay_out_runs
from reports.analysis.measures import add_tokens, list_measures, name_samples
from reports.building.sweep_report import build_report
from reports.plots.layout import GREY
from reports.plots.sweep_plots import make_plots
from reports.tables.sweep_tables import build_tables
from tests.reports import fabricate

TEXT = {"name": "synthetic_text", "bptt": 35}
LEAST = 0.01  # below all losses of fabricated runs


def make_sweep(
    directory: Path, datasets: Iterable[Any] = (TEXT, TEXT), least: Iterable[float | None] = (LEAST,) * 2
) -> Path:
    """A run for each data set, with this least loss."""
    points = [fabricate.config(name, dataset=dataset) for name, dataset in zip(("none", "qsgd"), datasets, strict=True)]
    made = fabricate.sweep(directory / "2026-11-20" / "14-03-22", points, swept=["compressor"])
    for path, loss in zip(sorted(made.glob(f"runs/*/{RESULT}")), least, strict=True):
        result = json.loads(path.read_text())
        path.write_text(json.dumps({**result, "least_loss": loss, "metrics": {"perplexity": 2.5}}))
    return made


def load_grid(sweep: Path) -> Grid:
    return lay_out_runs(reports.load(sweep).runs)


def list_least_lines(axis: Axes) -> list[float]:
    """The heights of the grey lines over the whole width."""
    ends = [np.asarray(line.get_ydata(), float) for line in axis.lines if line.get_color() == GREY]
    return [float(line[0]) for line in ends if len(line) == 2]


def test_samples_of_texts_are_tokens(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path)
    grid, report = load_grid(sweep), reports.load(sweep)
    tables = {table.name: table for table in build_tables(grid)}
    assert tables["throughput_samples"].columns[-1].unit == "tokens/s"
    columns = [column.unit for column in tables["runs"].columns if column.name == "throughput"]
    assert columns == ["it/s", "tokens/s"]
    assert list_measures((), grid.runs)["throughput_samples"].unit == "tokens/s"
    plots = {plot.name: plot for plot in make_plots(grid, report.epochs, report.profile)}
    assert "[tokens/s]" in plots["pareto_throughput"].figure.axes[0].get_xlabel()
    build_report(sweep, pictures=())
    page = (sweep / "report.html").read_text(encoding="utf-8")
    assert '"unit_of_samples":"tokens"' in page and '"progress":"tokens"' in page


def test_losses_of_texts_are_drawn_against_the_tokens_of_all_workers(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path)
    report = reports.load(sweep)
    evaluated = add_tokens(report.epochs, report.runs)
    samples = report.steps.groupby("run", observed=True)["samples"].mean()
    assert np.allclose(evaluated["tokens"], evaluated["step"] * evaluated["run"].map(samples).astype(float))
    plots = {plot.name: plot for plot in make_plots(load_grid(sweep), report.epochs, report.profile)}
    (axis,) = plots["loss_tokens"].figure.axes
    assert axis.get_xlabel() == "thousand tokens" and "loss_epoch" not in plots
    assert axis.dataLim.x1 == pytest.approx(evaluated["tokens"].max() / 1e3)


def test_samples_of_other_data_and_of_both_are_samples(tmp_path: Path) -> None:
    grid = load_grid(make_sweep(tmp_path, [TEXT, {"name": "digits"}]))
    assert name_samples(grid.runs) == "samples"
    assert name_samples(grid.runs[grid.runs["dataset"] == "synthetic_text"]) == "tokens"
    assert name_samples(grid.runs[:0]) == "samples"


def test_the_marks_of_a_throughput_in_tokens_are_those_of_its_run(tmp_path: Path) -> None:
    points = [fabricate.config("none", workers, dataset=TEXT) for workers in (2, 4)]
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "14-03-22", points, swept=["workers"])
    (table,) = (table for table in build_tables(load_grid(sweep)) if table.name == "runs")
    place = [column.unit for column in table.columns].index("tokens/s")
    assert ["†" in row[place].text for row in table.rows] == [False, True], "more workers than cores"


def test_the_least_loss_is_a_column_and_a_remark(tmp_path: Path) -> None:
    tables = {table.name: table for table in build_tables(load_grid(make_sweep(tmp_path)))}
    assert "least loss" in [column.name for column in tables["runs"].columns]
    assert [record["least_loss"] for record in tables["runs"].records] == [LEAST] * 2
    assert "the least of any model is 1.01, a loss of 0.0100" in tables["perplexity"].remarks


@pytest.mark.parametrize(("least", "lines"), [((LEAST, LEAST), [LEAST]), ((LEAST, 0.02), []), ((LEAST, None), [])])
def test_the_least_loss_is_a_line_where_all_runs_share_it(
    tmp_path: Path, least: tuple[float | None, ...], lines: list[float]
) -> None:
    sweep = make_sweep(tmp_path, least=least)
    report = reports.load(sweep)
    plots = {plot.name: plot for plot in make_plots(load_grid(sweep), report.epochs, report.profile)}
    for name in ("loss_tokens", "loss_time", "loss_bytes", "accuracy_tokens"):
        figure = plots[name].figure
        (axis,) = figure.axes
        expected = lines if name.startswith("loss") else []
        assert list_least_lines(axis) == expected
        bottom, top = axis.get_ylim()
        assert all(bottom <= line <= top for line in expected)
        labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert ("least of any model: 0.0100" in labels) == bool(expected)
    build_report(sweep, pictures=())
    known = f'"least_loss":{LEAST}' if lines else '"least_loss":null'
    assert known in (sweep / "report.html").read_text(encoding="utf-8")


def test_other_runs_have_no_least_loss(tmp_path: Path) -> None:
    grid = load_grid(make_sweep(tmp_path, least=(None, None)))
    tables = {table.name: table for table in build_tables(grid)}
    assert "least loss" not in [column.name for column in tables["runs"].columns]
    assert not any("least of any model" in remark for remark in tables["perplexity"].remarks)


def test_runs_that_were_evaluated_within_epochs_have_curves_against_steps_on_the_page(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, [{"name": "digits"}] * 2)
    build_report(sweep, pictures=())
    assert '"progress":"epoch"' in (sweep / "report.html").read_text(encoding="utf-8")
    for path in sweep.glob("runs/*/epochs.csv"):
        rows = pd.read_csv(path)
        rows.assign(epoch=rows["epoch"].clip(upper=2)).to_csv(path, index=False)  # the third is within the second, too
    build_report(sweep, pictures=())
    assert '"progress":"step"' in (sweep / "report.html").read_text(encoding="utf-8")
