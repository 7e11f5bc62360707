"""Runs in Python: the example notebook does what it shows, and the page of the columns tells the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import reports
from gradsweep import run_directory
from reports.reading.columns import RUN_COLUMNS
from tests.conftest import ROOT
from tests.reports import fabricate

NOTEBOOK = ROOT / "docs/notebook/sweep.ipynb"


def test_it_holds_no_outputs_and_no_paths() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert "/home" not in str(notebook) and "/tmp" not in str(notebook) and "Traceback" not in str(notebook)


@pytest.fixture(params=["seeds", "one run"])
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    seeds = [fabricate.config(name, 2, seed=seed) for name in ("none", "qsgd") for seed in range(3)]
    made = fabricate.sweep(tmp_path / "2026-11-20" / "14-03-22", seeds if request.param == "seeds" else seeds[:1])
    fabricate.run(made, fabricate.config("svd"), run_directory.FAILED, "out of memory")
    return made


@pytest.mark.thorough
def test_it_runs(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(sweep.parent / "ipython"))  # else in the user's home
    before = {path: path.read_bytes() for path in (sweep / run_directory.RUNS).rglob("*") if path.is_file()}
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = f"where = [{str(sweep)!r}]"
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert not [output for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    count = len(list((sweep / run_directory.RUNS).iterdir()))
    assert f"{count} runs of 1 sweeps: {{'done': {count - 1}, 'failed': 1}}" in str(outputs[0])
    assert {path: path.read_bytes() for path in (sweep / run_directory.RUNS).rglob("*") if path.is_file()} == before


def test_columns_and_dtypes_are_those_of_the_page(sweep: Path) -> None:
    page = (ROOT / "docs/reference/columns.md").read_text(encoding="utf-8")
    report = reports.load(sweep)
    for name in ("runs", "epochs", "steps"):
        frame = getattr(report, name)
        rows = re.search(rf"\| column of `{name}` .*\n\|---.*\n((?:\|.*\n)+)", page)
        assert rows is not None
        told = {}
        for row in rows[1].splitlines():
            columns, dtype = row.split("|")[1:3]
            told |= dict.fromkeys(re.findall(r"`(.+?)`", columns), dtype.strip(" `"))
        known = {column: str(dtype) for column, dtype in frame.dtypes.items()}
        names = {"sweep": "category", "run": "category"}
        keys = {key: dtype for key, dtype in known.items() if name == "runs" and key not in RUN_COLUMNS}
        assert known == (told | keys if name == "runs" else names | told)
    assert report.profile.dtypes.astype(str).to_dict() == report.steps.dtypes.astype(str).to_dict() | {
        "samples": "float64"
    }
