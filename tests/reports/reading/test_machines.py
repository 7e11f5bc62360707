"""A table says so where its runs were made on machines that are not alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import reports
from gradsweep import files, run_directory
from reports.analysis.grid import lay_out_runs
from reports.building.sweep_report import build_report
from reports.reading.machines import write_remarks
from reports.tables.formats import to_markdown
from reports.tables.sweep_tables import build_tables
from tests.reports import fabricate

EPYC: Mapping[str, Any] = {
    "cpu": {"model": "AMD EPYC"},
    "gpus": [],
    "calibration": {"copy_gb_s": 12.0, "matmul_gflop_s": 90.0, "loop_mops": 20.0},
}
SLOWER = {"copy_gb_s": 11.0, "matmul_gflop_s": 45.0, "loop_mops": 19.0}


def sweep_of(folder: Path, **by_compressor: Any) -> Path:
    """The main job; what the first attempts at each compressor's runs have recorded."""
    sweep = fabricate.nine(folder / "2026-11-20" / "14-03-22")
    for name, record in by_compressor.items():
        for run in (sweep / run_directory.RUNS).glob(f"compressor={name},*"):
            files.write_json(run / "attempt-1" / run_directory.PROVENANCE, record)
    return sweep


def said(sweep: Path) -> list[str]:
    return write_remarks(reports.load(sweep).runs)


def test_runs_of_equal_machines_need_no_remark(tmp_path: Path) -> None:
    faster = {rate: 1.25 * value for rate, value in EPYC["calibration"].items()}
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd={**EPYC, "calibration": faster})  # of `none` nothing is known
    assert said(sweep) == []
    runs = reports.load(sweep).runs.set_index("compressor")
    assert set(runs.loc["qsgd", "cpu"]) == {"AMD EPYC"} and runs.loc["none", "cpu"].isna().all()
    assert set(runs.loc["svd", "matmul_gflop_s"]) == {112.5} and runs["gpu"].isna().all()


def test_every_table_of_times_and_the_page_name_the_machines(tmp_path: Path) -> None:
    other = {**EPYC, "cpu": {"model": "Intel Xeon"}, "gpus": ["H200, 143771 MiB, 580.95"]}
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd=other, none=EPYC)
    expected = (
        "made on different machines, so it/s and times of these are not comparable: "
        "AMD EPYC (6 runs) and Intel Xeon with H200, 143771 MiB, 580.95 (3 runs)"
    )
    assert said(sweep) == [expected]
    for table in build_tables(lay_out_runs(reports.load(sweep).runs)):
        is_of_times = table.name not in ("accuracy", "accuracy_best", "payload", "sent", "compression_ratio")
        is_of_times &= table.name != "compression_error"
        assert (expected in table.notes) == (expected in to_markdown(table).decode()) == is_of_times, table.name
    built = build_report(sweep, pictures=())
    assert "Intel Xeon with H200" in built.page.read_text(encoding="utf-8")
    assert "Intel Xeon" in (sweep / run_directory.SUMMARY).read_text(encoding="utf-8")


def test_so_they_say_that_a_machine_was_not_equally_fast(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd={**EPYC, "calibration": SLOWER}, none=EPYC)
    (remark,) = said(sweep)
    assert remark.startswith(
        "calibrated 2.0 times as fast in some runs as in others (45.0 to 90.0 GFLOP/s of a product"
    )


def test_what_is_not_done_has_no_figures_to_compare(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd={**EPYC, "cpu": {"model": "other"}, "calibration": SLOWER}, none=EPYC)
    runs = reports.load(sweep).runs
    assert len(write_remarks(runs)) == 2
    assert (
        write_remarks(runs.assign(status=runs["status"].where(runs["compressor"] != "svd", run_directory.FAILED))) == []
    )


def test_a_run_that_went_on_elsewhere_was_made_on_both(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd=EPYC, none=EPYC)
    run = next((sweep / run_directory.RUNS).glob("compressor=svd,workers=2*"))
    (run / "attempt-2").mkdir()
    files.write_json(run / "attempt-2" / run_directory.PROVENANCE, {**EPYC, "cpu": {"model": "other"}})
    state = json.loads((run / run_directory.STATE).read_text())
    files.write_json(
        run / run_directory.STATE, {**state, "attempts": [*state["attempts"], {**state["attempts"][0], "number": 2}]}
    )
    assert "other (1 run)" in said(sweep)[0], "begun anew: only the last attempt counts"
    result = json.loads((run / run_directory.RESULT).read_text())
    files.write_json(run / run_directory.RESULT, {**result, "resumed_after": [7]})
    assert "AMD EPYC; other (1 run)" in said(sweep)[0]


def test_a_run_on_nodes_that_differ_is_seen(tmp_path: Path) -> None:
    other = {"cpu": {"model": "another"}, "gpus": ["H200"], "calibration": SLOWER}
    mixed = {**EPYC, "other_nodes": {"n2": {"calibration": EPYC["calibration"]}, "n3": other, "n4": None}}
    sweep = sweep_of(tmp_path, qsgd=EPYC, svd=mixed, none={**EPYC, "other_nodes": {"n2": None}})
    kinds, speeds = said(sweep)
    assert "AMD EPYC (6 runs) and AMD EPYC; another with H200 (3 runs)" in kinds
    assert "45.0 to 90.0 GFLOP/s" in speeds, "the slowest node counts, for which the others wait"
    turned = {**other, "other_nodes": {"n2": EPYC}}  # begun on another one of the same nodes
    assert said(sweep_of(tmp_path / "alike", qsgd=mixed, svd=turned, none=mixed)) == []


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"cpu": "x", "gpus": {"a": 1}, "calibration": []},
        {"cpu": {"model": None}, "gpus": [None, 0], "calibration": {"loop_mops": "fast", "copy_gb_s": -1}},
        {"other_nodes": {"n2": {"cpu": "x", "calibration": 1}, "n3": 7}},
        {"other_nodes": ["n2"]},
        {"cpu": {"model": ["x"]}, "gpus": ["\x1b[31m"], "calibration": {"matmul_gflop_s": True}},
    ],
)
def test_a_record_of_any_kind_is_no_reason_to_fail(tmp_path: Path, record: dict[str, Any]) -> None:
    runs = reports.load(sweep_of(tmp_path, qsgd=record, svd=record, none=record)).runs
    assert write_remarks(runs) == [] and runs[["copy_gb_s", "matmul_gflop_s", "loop_mops"]].isna().all(axis=None)
    assert not runs["gpu"].str.contains("\x1b").fillna(False).any()


def test_a_record_that_cannot_be_read_is_left_out_by_name(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, qsgd=EPYC)
    torn = (
        next((sweep / run_directory.RUNS).glob("compressor=qsgd,workers=2*")) / "attempt-1" / run_directory.PROVENANCE
    )
    torn.write_text('{"cpu"')
    report = reports.load(sweep)
    assert [entry.path for entry in report.left_out] == [torn] and isinstance(report.runs, pd.DataFrame)
