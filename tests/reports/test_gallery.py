"""The report in docs/gallery is that of the runs beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from reports.build import build
from tests.conftest import ROOT

GALLERY = ROOT / "docs/gallery/digits"


def test_the_gallery_is_what_its_runs_say(tmp_path: Path) -> None:
    sweep = tmp_path / "digits"
    shutil.copytree(GALLERY, sweep, ignore=shutil.ignore_patterns("plots", "report.html", "tables", "summary.csv"))
    built = build(sweep, pictures=())
    assert len(built.report.runs) == 45 and not built.left_out
    for path in (GALLERY / "tables").iterdir():
        assert (sweep / "tables" / path.name).read_text() == path.read_text(), path.name
    page = " ".join((ROOT / "docs/gallery/README.md").read_text().split())
    (throughput,) = (table for table in built.tables if table.name == "throughput")
    for row in throughput.rows:
        assert f"| {' | '.join(cell.text.replace('*', chr(92) + '*') for cell in row.cells)} |" in page
    assert {path.name for path in (GALLERY / "plots").iterdir()} >= {"throughput.png", "accuracy_bytes.png"}
