"""The answer in docs/gallery/when-does-compression-pay is what its runs say."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from reports.__main__ import main
from reports.scaling.model.cross_validation import CrossValidation
from reports.scaling.output.fit_tables import summarize_check
from tests.conftest import ROOT
from tests.reports.scaling.conftest import predictor_of
from tests.reports.test_gallery import numbers

GALLERY = ROOT / "docs/gallery/when-does-compression-pay"
SWEEPS = ("wideresnet34", "resnet18")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of its sweeps, beside which a report may write."""
    place = tmp_path_factory.mktemp("gallery")
    cache = shutil.ignore_patterns(".report-cache")
    return [Path(shutil.copytree(GALLERY / name, place / name, ignore=cache)) for name in SWEEPS]


def test_its_tables_are_what_its_runs_say(copies: list[Path], tmp_path: Path) -> None:
    words = ["--network", "10gbit,100gbit", "--format", "csv,md", "--no-plots", "--quiet"]
    assert main(["scaling", *map(str, copies), *words, "--into", str(tmp_path / "made")]) == 0
    tables = [path for path in (GALLERY / "scaling").iterdir() if path.suffix == ".csv"]
    assert len(tables) == 9
    for path in tables:  # whose numbers are in full, and another processor may have other last bits
        made = (tmp_path / "made" / path.name).read_text()
        assert numbers(made) == pytest.approx(numbers(path.read_text()), rel=1e-4, abs=1e-9, nan_ok=True), path.name


def test_its_page_tells_the_errors(copies: list[Path]) -> None:
    """Those of the two models together, and as good as was asked for: 10 % in the median, 25 % in nine of ten."""
    page = " ".join((GALLERY / "README.md").read_text().split())
    lines = (GALLERY / "scaling/scaling_check.md").read_text().splitlines()
    said = next(line for line in lines if "cells left out one by one" in line)
    assert said in page
    rows = list(csv.DictReader((GALLERY / "scaling/scaling_check.csv").open()))
    errors = [abs(float(row["error"])) for row in rows]
    figures = f"{np.quantile(errors, 0.5):.1%} | {np.quantile(errors, 0.9):.1%} | {max(errors):.0%}".replace("%", " %")
    assert f"| {len(errors)} | {figures} |" in page
    checks: list[CrossValidation] = [predictor_of(copy).check for copy in copies]
    assert all(check.median < 0.1 and check.p90 < 0.25 for check in checks), [
        summarize_check(check) for check in checks
    ]
