"""benchmarks/gpu.py walks through its parts without a GPU, keeps what it has measured, and compares runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_parts import page, results
from benchmarks.gpu_parts.methods import list_gpt2, list_resnet50
from benchmarks.gpu_parts.sharing import find_reason
from benchmarks.gpu_parts.tests import list_results
from tests.conftest import ROOT

SCRIPT = [sys.executable, str(ROOT / "benchmarks" / "gpu.py")]
PARTS = ["machine", "compiling", "methods", "bits", "resnet9", "resnet50", "gpt2", "hooks", "layers", "large"]


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment |= {"OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([*SCRIPT, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550)


def test_without_a_gpu_one_line_says_so(tmp_path: Path) -> None:
    done = run("--out", str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "no GPU" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_dry_run_walks_through_all_parts(tmp_path: Path) -> None:
    done = run("--dry", "--out", str(tmp_path), "--parts", *PARTS)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / results.SUMMARY).read_text())
    found = summary["results"]
    assert found == results.read_lines(tmp_path / results.LINES)
    wrong = [one for one in found if "error" in one or one["case"] == "incomplete" or one.get("equal") is False]
    assert not wrong
    cases = {(one["part"], one["case"]) for one in found}
    for part in ("methods", "layers"):
        assert {(part, name) for name in ("none", "qsgd", "topk,ratio=0.01", "powersgd,rank=2")} <= cases
    assert {("resnet9", "model in bare torch"), ("resnet50", "none"), ("gpt2", "qsgd"), ("hooks", "fp16")} <= cases
    text = (tmp_path / page.TEXT).read_text()
    assert "### A step of ResNet-9" in text and "| qsgd |" in text
    filled = tmp_path / "page.md"
    filled.write_text(page.PAGE.read_text())
    done = run("--from", str(tmp_path), "--page", str(filled))
    assert done.returncode == 0 and text.strip() in filled.read_text()


@pytest.mark.mpi
def test_ranks_share_a_device(tmp_path: Path) -> None:
    done = run("--dry", "--out", str(tmp_path), "--parts", "shared")
    (shared,) = [one for one in results.read_lines(tmp_path / results.LINES) if "step_ms" in one]
    assert done.returncode == 0 and shared["case"] == "2 ranks, exchange.transport=mpi, qsgd"


def test_shapes_are_those_of_the_models() -> None:
    def count(shapes: list[tuple[int, ...]]) -> int:
        return sum(math.prod(shape) for shape in shapes)

    assert len(list_resnet50()) == 161 and count(list_resnet50()) == 25_557_032
    assert 123e6 < count(list_gpt2()) < 125e6


def test_what_is_slower_by_more_than_the_spread_is_named() -> None:
    def record(case: str, copies: float, spread: float) -> dict[str, Any]:
        return {"part": "methods", "case": case, "copies": copies, "spread": spread}

    old = [record("a", 4.0, 0.01), record("b", 4.0, 0.2), record("c", 4.0, 0.0), record("gone", 1.0, 0.0)]
    new = [record("a", 5.0, 0.01), record("b", 5.0, 0.1), record("c", 2.0, 0.0), record("new", 1.0, 0.0)]
    assert results.compare(old, new) == [
        "methods: a: slower: 4 -> 5 copies (+25 %)",
        "methods: c: faster: 4 -> 2 copies (-50 %)",
    ]


def test_lines_of_a_run_that_was_cut_short_are_read(tmp_path: Path) -> None:
    path = tmp_path / results.LINES
    path.write_text('{"part": "bits", "case": "qsgd", "equal": true}\n{"part": "bi')
    assert results.read_lines(path) == [{"part": "bits", "case": "qsgd", "equal": True}]


def test_the_reason_of_a_failure_is_the_line_that_says_most() -> None:
    text = "Traceback\n\nncclInvalidUsage\nDuplicate GPU detected : rank 0 and rank 1\nRuntimeError: x\nbye"
    assert find_reason(text) == "Duplicate GPU detected : rank 0 and rank 1"
    assert find_reason("a\nRuntimeError: x\nbye") == "RuntimeError: x" and find_reason("") == "no output"


def test_results_of_a_run_without_a_summary_are_named() -> None:
    text = (
        "[gw0] [  1%] PASSED tests/a.py::t[x] \n[gw1] [ 20%] FAILED tests/a.py::u[y, z] \ntests/b.py::v PASSED [ 3%]\n"
    )
    assert list_results(text) == [
        ("PASSED", "tests/a.py::t[x]"),
        ("FAILED", "tests/a.py::u[y, z]"),
        ("PASSED", "tests/b.py::v"),
    ]
