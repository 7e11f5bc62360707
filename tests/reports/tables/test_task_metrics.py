"""Metrics of the runs' tasks in Report.runs, tables, summaries and on the page."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import reports
from gradsweep.run_directory import EPOCHS, RESULT, SUMMARY
from reports.analysis.grid import lay_out_runs
from reports.building.sweep_report import build_report
from reports.exports.runs import read_ended_runs
from reports.plots.sweep_plots import make_plots
from reports.tables.pivot import Choice, pivot
from reports.tables.sweep_tables import build_tables
from tests.reports import fabricate

VALUES: dict[str, dict[str, Any]] = {
    "none": {"mae": 0.25, "f1": 0.5},
    "qsgd": {"mae": 0.5, "f1": None, "not a name": 1, "steps": "two"},
    "svd": {},
}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three runs: one without a metric, and the last of a task without any."""
    points = [fabricate.config(name, task={"name": "custom", "target": "mine:Task"}) for name in VALUES]
    made = fabricate.sweep(tmp_path / "2026-11-20" / "14-03-22", points, swept=["compressor"])
    for path in made.glob(f"runs/*/{RESULT}"):
        result = json.loads(path.read_text())
        name = json.loads(json.dumps(path.parent.name)).split("-")[0].removeprefix("compressor=").split(",")[0]
        path.write_text(json.dumps({**result, "accuracy": None, "best_accuracy": None, "metrics": VALUES[name]}))
        epochs = pd.read_csv(path.parent / EPOCHS)
        column = {"none": "test_mae", "qsgd": "mae"}.get(name, "other")  # a script may leave out the prefix
        epochs.assign(**{column: 1 / epochs["epoch"]}).to_csv(path.parent / EPOCHS, index=False)
    return made


def test_they_are_columns_and_no_keys(sweep: Path) -> None:
    report = reports.load(sweep)
    runs = report.runs.set_index("compressor")
    assert [column for column in runs if column.startswith("metric.")] == ["metric.mae", "metric.f1", "metric.steps"]
    assert runs.loc["none", "metric.mae"] == 0.25 and runs.loc["qsgd", "metric.mae"] == 0.5
    assert math.isnan(runs.loc["qsgd", "metric.f1"]) and math.isnan(runs.loc["svd", "metric.mae"])
    assert str(runs["metric.mae"].dtype) == "float64"
    grid = lay_out_runs(report.runs)
    assert grid.keys == () and not any(key.startswith("metric.") for key in grid.constants)


def test_their_curves_are_drawn(sweep: Path) -> None:
    report = reports.load(sweep)
    epochs = report.epochs
    assert [column for column in epochs if "mae" in column] == ["metric.mae"] and "other" not in epochs
    known = epochs[epochs["metric.mae"].notna()]
    assert known["run"].nunique() == 2 and (known["metric.mae"] == 1 / known["epoch"]).all()
    again = reports.load(sweep).epochs  # from the cache
    pd.testing.assert_frame_equal(again, epochs)
    plots = {plot.name: plot for plot in make_plots(lay_out_runs(report.runs), epochs, report.profile)}
    assert {"metric_mae_epoch", "metric_mae_time", "metric_mae_bytes"} <= set(plots) and "metric_f1_epoch" not in plots
    assert plots["metric_mae_epoch"].title == "Mean absolute error against epochs"
    assert plots["metric_mae_epoch"].figure.axes[0].get_ylabel() == "mae"
    (sample, *_) = [each for run in read_ended_runs(report) for each in run.read() if "epoch/test_mae" in each.values]
    assert sample.values["epoch/test_mae"] == 1


def test_they_have_tables_and_a_column_in_that_of_runs(sweep: Path) -> None:
    tables = {table.name: table for table in build_tables(lay_out_runs(reports.load(sweep).runs))}
    assert (
        tables["mae"].title == "Mean absolute error on the test set after the last epoch" and "accuracy" not in tables
    )
    assert [[cell.text for cell in row] for row in tables["mae"].rows] == [
        ["none", "0.2500"],
        ["qsgd", "0.5000"],
        ["svd", "not measured"],
    ]
    names = [column.name for column in tables["runs"].columns]
    assert {"mae", "f1"} <= set(names)
    record = tables["runs"].records[0]
    assert (record["metric.mae"], record["metric.f1"]) == (0.25, 0.5)


def test_one_table_can_be_asked_for(sweep: Path) -> None:
    report = reports.load(sweep)
    table = pivot(report.runs, report.epochs, Choice(value="f1"))
    assert [row[-1].text for row in table.rows] == ["0.5000", "not measured", "not measured"]


def test_the_summary_and_the_page_have_them(sweep: Path) -> None:
    build_report(sweep, pictures=())
    (first, *_) = csv.DictReader(io.StringIO((sweep / SUMMARY).read_text()))
    assert (first["compressor"], first["metric.mae"], first["metric.f1"]) == ("none", "0.25", "0.5")
    page = (sweep / "report.html").read_text(encoding="utf-8")
    assert "Mean absolute error on the test set" in page and '"metrics":["metric.mae","metric.f1"' in page
