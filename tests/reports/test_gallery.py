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


METHODS = (
    "gpt_char_cpu",
    "powersgd_gpt",
    "demo_gpt",
    "diloco_gpt",
    "streaming_diloco_gpt",
    "sparseloco_gpt",
)


def test_the_table_of_methods_is_computed_from_the_runs() -> None:
    kept = GALLERY / "training-over-the-internet"
    rows = [line for line in (kept / "README.md").read_text().splitlines() if " MB | " in line]
    assert len(rows) == len(METHODS)
    for row, method in zip(rows, METHODS, strict=True):
        runs = [pd.read_csv(run / "epochs.csv") for run in (kept / "runs").glob(f"*experiment={method}-*")]
        assert len(runs) == 3
        ends = pd.DataFrame([run.iloc[-1] for run in runs])
        loss, time = ends["test_loss"], ends["time_s"]
        cells = [f"{loss.mean():.3f} ± {loss.std():.3f}", f"{time.mean():.0f} ± {time.std():.0f} s"]
        sent = ends["sent_bytes"].mean() / 1e6
        cells.append(f"{sent:,.0f} MB" if sent > 10 else f"{sent:.1f} MB")
        for target in (2.3, 2.15):
            times = pd.Series([find_time(run, target) for run in runs])
            cells.append("not reached" if times.isna().any() else f"{times.mean():.0f} ± {times.std():.0f} s")
        assert row.endswith(f"| {' | '.join(cells)} |"), (method, cells)


def find_time(run: pd.DataFrame, target: float) -> float:
    """Return the seconds of training until the test loss is `target`, between two evaluations; NaN if it never is."""
    above = run["test_loss"].to_numpy() > target
    if above.all():
        return float("nan")
    at = int(above.argmin())  # the first evaluation at or below
    (before, start), (after, end) = run.loc[[at - 1, at], ["test_loss", "time_s"]].to_numpy()
    return float(start + (before - target) / (before - after) * (end - start))
