"""The reports in docs/gallery are those of the runs beside them."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pandas as pd
import pytest

from reports.building.sweep_report import build_report
from tests.conftest import ROOT

GALLERY = ROOT / "docs/gallery"
MADE = ("plots", "report.html", "tables", "summary.csv", ".report-cache")


def numbers(text: str) -> list[float]:
    """Of all fields that are numbers, in order; NaN for the others."""
    return pd.DataFrame(csv.reader(io.StringIO(text))).apply(pd.to_numeric, errors="coerce").stack().to_list()


@pytest.mark.parametrize(
    ("name", "runs", "shown", "pictures"),
    [
        ("digits", 60, ("throughput",), {"throughput.png", "accuracy_bytes.png"}),
        (
            "training-over-the-internet",
            18,
            ("perplexity", "throughput"),
            {"loss_time.png", "loss_bytes.png", "loss_tokens.png"},
        ),
    ],
)
def test_the_gallery_is_what_its_runs_say(
    name: str, runs: int, shown: tuple[str, ...], pictures: set[str], tmp_path: Path
) -> None:
    sweep, kept = tmp_path / name, GALLERY / name
    shutil.copytree(kept, sweep, ignore=shutil.ignore_patterns(*MADE))
    built = build_report(sweep, pictures=())
    assert len(built.report.runs) == runs and not built.left_out
    for path in (kept / "tables").iterdir():
        made = (sweep / "tables" / path.name).read_text()
        if path.suffix == ".csv":  # whose numbers are in full, and another processor may have other last bits
            assert numbers(made) == pytest.approx(numbers(path.read_text()), rel=1e-6, nan_ok=True), path.name
        else:
            assert made == path.read_text(), path.name
    page = " ".join((kept / "README.md").read_text().split())
    for row in (row for table in built.tables if table.name in shown for row in table.rows):
        assert f"| {' | '.join(cell.text.replace('*', chr(92) + '*') for cell in row)} |" in page
    assert {path.name for path in (kept / "plots").iterdir()} >= pictures
