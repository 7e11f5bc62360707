"""What runs cost in memory: as the runs say it, in tables, in summaries, and on the page."""

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
from gradsweep.run_directory import MEMORY_PARTS, RESULT, SUMMARY, Run
from reports.analysis.grid import lay_out_runs
from reports.analysis.table import ReportTable
from reports.building.sweep_report import build_report
from reports.tables import formats
from reports.tables.sweep_tables import build_tables
from sweep.settings import metrics
from tests.reports import fabricate

MODEL = 310_248
KEPT = {"none": 0, "qsgd": MODEL, "svd": 2 * MODEL}


def describe(name: str, workers: int) -> dict[str, Any]:
    """The figures of a run, of which each is another number."""
    sizes = (MODEL, MODEL, MODEL, KEPT[name], 1000 * workers)
    peak = 5_000_000 + sum(sizes)
    figures = {"peak_memory": peak, "peak_memory_mean": peak - 7.5, "end_memory": peak - 1000, "memory_before": 1.5e8}
    return figures | {
        "peak_host_memory": peak,
        "peak_gpu_memory": None,
        "memory_parts": dict(zip(MEMORY_PARTS, sizes, strict=True)),
    }


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Six runs, of which the last one is of a version that measured no memory."""
    points = [fabricate.config(name, workers) for name in KEPT for workers in (2, 4)]
    made = fabricate.sweep(tmp_path / "2026-11-20" / "14-03-22", points, swept=["compressor", "workers"])
    for path in made.glob(f"runs/*/{RESULT}"):
        name, workers = path.parent.name.split("-")[0].split(",")
        if (name, workers) != ("compressor=svd", "workers=4"):
            figures = describe(name.removeprefix("compressor="), int(workers.removeprefix("workers=")))
            path.write_text(json.dumps(json.loads(path.read_text()) | figures))
    return made


def made(sweep: Path) -> dict[str, ReportTable]:
    return {table.name: table for table in build_tables(lay_out_runs(reports.load(sweep).runs))}


def test_columns_are_those_of_the_results(sweep: Path) -> None:
    runs = reports.load(sweep).runs
    for run in runs.to_dict("records"):
        old = (run["compressor"], run["workers"]) == ("svd", 4)
        said = {} if old else describe(run["compressor"], run["workers"])
        for column in ("peak_memory", "peak_memory_mean", "end_memory", "peak_host_memory", "memory_before"):
            assert run[column] == said[column] if said else pd.isna(run[column]), column
        for part in MEMORY_PARTS:
            assert run[f"{part}_memory"] == said["memory_parts"][part] if said else pd.isna(run[f"{part}_memory"])
        assert pd.isna(run["peak_gpu_memory"])


def test_tables_are_those_of_the_results(sweep: Path) -> None:
    tables = made(sweep)
    rows = list(csv.DictReader(io.StringIO(formats.to_csv(tables["memory"]).decode())))
    found = {(row["compressor"], int(row["workers"]), row["measure"]): row for row in rows}
    assert {row["unit"] for row in rows} == {"B"} and len(rows) == 6 * (len(MEMORY_PARTS) + 2)
    for name, workers in ((name, workers) for name in KEPT for workers in (2, 4)):
        said = describe(name, workers)
        expected = {f"{part}_memory": size for part, size in said["memory_parts"].items()}
        expected |= {measure: said[measure] for measure in ("end_memory", "peak_memory")}
        for measure, size in expected.items():
            mean = found[name, workers, measure]["mean"]
            assert mean == "" if (name, workers) == ("svd", 4) else float(mean) == size
    peaks = [[cell.text for cell in row] for row in tables["peak_memory"].rows]
    assert peaks[0][:1] == ["none"] and peaks[0][1] == f"{describe('none', 2)['peak_memory'] / 1e6:.2f}"
    assert peaks[2][2] == "not measured" and tables["peak_memory"].columns[1].shown == "MB"


def test_people_see_the_parts_in_the_unit_of_the_model(sweep: Path) -> None:
    table = made(sweep)["memory"]
    assert [column.name for column in table.columns][2:] == [*MEMORY_PARTS, "at the end", "peak"]
    assert {column.shown for column in table.columns[2:]} == {"kB"}
    (qsgd,) = [[cell.text for cell in row] for row in table.rows if [cell.text for cell in row[:2]] == ["qsgd", "2"]]
    assert qsgd[2:] == ["310", "310", "310", "310", "2.00", "6,240", "6,240"]
    assert any("maximum over the workers" in note for note in table.notes)


def test_searches_take_the_smallest_peak(sweep: Path) -> None:
    """Of a run that measured none, they know no value."""
    peaks = [metrics.read_value(Run(path), "peak_memory") for path in (sweep / "runs").iterdir()]
    assert sorted(peak for peak in peaks if not math.isnan(peak)) == sorted(
        describe(name, workers)["peak_memory"]
        for name, workers in ((name, workers) for name in KEPT for workers in (2, 4))
        if (name, workers) != ("svd", 4)
    )
    assert len(peaks) == 6 and metrics.METRICS["peak_memory"].goal == metrics.MINIMIZE


def test_reports_have_them_and_those_of_earlier_versions_do_not(sweep: Path, tmp_path: Path) -> None:
    build_report(sweep, pictures=())
    page = (sweep / "report.html").read_text(encoding="utf-8")
    assert "Memory of a worker by part" in page and '"peak_memory"' in page
    with (sweep / SUMMARY).open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["peak_memory"] for row in rows)[0] == "" and len({row["peak_memory"] for row in rows}) == 6
    old = made(fabricate.sweep(tmp_path / "old", [fabricate.config("none"), fabricate.config("qsgd")]))
    assert not {"memory", "peak_memory"} & old.keys() and "peak memory" not in [c.name for c in old["runs"].columns]
