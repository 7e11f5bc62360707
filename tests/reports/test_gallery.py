"""The report in docs/gallery is that of the runs beside it."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pandas as pd
import pytest

from reports.building.sweep_report import build_report
from tests.conftest import ROOT

GALLERY = ROOT / "docs/gallery/digits"
MADE = ("plots", "report.html", "tables", "summary.csv", ".report-cache")


def numbers(text: str) -> list[float]:
    """Of all fields that are numbers, in order; NaN for the others."""
    return pd.DataFrame(csv.reader(io.StringIO(text))).apply(pd.to_numeric, errors="coerce").stack().to_list()


def test_the_gallery_is_what_its_runs_say(tmp_path: Path) -> None:
    sweep = tmp_path / "digits"
    shutil.copytree(GALLERY, sweep, ignore=shutil.ignore_patterns(*MADE))
    built = build_report(sweep, pictures=())
    assert len(built.report.runs) == 60 and not built.left_out
    for path in (GALLERY / "tables").iterdir():
        made = (sweep / "tables" / path.name).read_text()
        if path.suffix == ".csv":  # whose numbers are in full, and another processor may have other last bits
            assert numbers(made) == pytest.approx(numbers(path.read_text()), rel=1e-6, nan_ok=True), path.name
        else:
            assert made == path.read_text(), path.name
    page = " ".join((GALLERY / "README.md").read_text().split())
    (throughput,) = (table for table in built.tables if table.name == "throughput")
    for row in throughput.rows:
        assert f"| {' | '.join(cell.text.replace('*', chr(92) + '*') for cell in row)} |" in page
    assert {path.name for path in (GALLERY / "plots").iterdir()} >= {"throughput.png", "accuracy_bytes.png"}
