"""benchmarks/sweep.py says what each part takes, beside what is asked of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Finding
from tests.conftest import ROOT

SCRIPT = [sys.executable, str(ROOT / "benchmarks" / "sweep.py")]


def run(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SCRIPT, *words], cwd=cwd, capture_output=True, text=True, timeout=550)


def test_a_figure_stands_beside_what_is_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "slots", "--runs", "2", "--seconds", "0.1", "--slots", "1")
    assert done.returncode == 0 and done.stdout.startswith("slots: 2 runs of 0.1 s on 1 slots, by the ideal: ")
    wrong = run(tmp_path, "plam")
    assert wrong.returncode == 2 and "'plam'" in wrong.stderr


def test_missed_is_said() -> None:
    assert Finding("x", 6.3, "s", 5.0).limit_text == "5 s at most: missed"
    assert Finding("x", 4.96, "s", 5.0).limit_text == "5 s at most"
    assert Finding("x", 0.0251, "s", None, "cpu 1 s").seen == "0.025 s, cpu 1 s" and Finding("x", 1.0).limit_text == ""
