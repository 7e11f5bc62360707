"""`Report.profile`: the steps of every run in few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import reports
from gradsweep import csv_columns, files, run_directory
from reports.reading.step_profile import BINS
from tests.reports import fabricate


def test_bins_are_means_of_consecutive_steps_and_end_where_their_last_step_does(nine: Path) -> None:
    report = reports.load(nine)
    assert list(report.profile) == list(report.steps)
    for name, bins in report.profile.groupby("run", observed=True):
        steps = report.steps[report.steps["run"] == name].reset_index(drop=True)
        assert len(bins) == BINS and bins["step"].iloc[-1] == len(steps) == 180
        before = 0
        for row in bins.to_dict("records"):
            inside = steps[(steps["step"] > before) & (steps["step"] <= row["step"])]
            assert len(inside) in (1, 2), "bins differ by one step at most"
            assert row["time_s"] == inside["time_s"].iloc[-1] and row["epoch"] == inside["epoch"].iloc[-1]
            assert row["encode_s"] == pytest.approx(inside["encode_s"].mean())
            before = row["step"]


def test_what_was_measured_on_some_steps_only_is_the_mean_of_these(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    (directory,) = (sweep / run_directory.RUNS).iterdir()
    (directory / run_directory.STEPS).unlink()
    rows = [{"step": step, "compression_error": 0.5 if step % 7 == 0 else ""} for step in range(1, 1001)]
    files.append_rows(directory / run_directory.STEPS, csv_columns.STEP_COLUMNS, rows)
    found = reports.load(sweep).profile
    assert list(found["step"]) == list(range(10, 1001, 10))
    assert set(found["compression_error"].dropna()) == {0.5} and found["memory_norm"].isna().all()
    ten = np.arange(1, 1001).reshape(BINS, 10)
    assert list(found["compression_error"].notna()) == [bool((part % 7 == 0).any()) for part in ten]


def test_short_runs_are_shown_as_they_are_and_runs_without_steps_have_no_rows(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config(epochs=3)])
    fabricate.run(sweep, fabricate.config(seed=1), run_directory.PENDING)
    report = reports.load(sweep)
    assert len(report.profile) == 36
    assert report.profile.equals(report.steps.astype({"samples": "float64"}))
