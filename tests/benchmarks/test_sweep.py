"""benchmarks/sweep.py does what it says: the comparison with other launchers, in small."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.thorough

SCRIPT = [sys.executable, str(ROOT / "benchmarks" / "sweep.py")]


def run(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SCRIPT, *words], cwd=cwd, capture_output=True, text=True, timeout=550)


def table(out: str, heading: str) -> list[list[str]]:
    """Rows of the table whose first line holds `heading`."""
    lines = out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|") and heading in line)
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def there(package: str) -> bool:
    try:
        return importlib.util.find_spec(f"hydra_plugins.{package}") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.mpi
@pytest.mark.parametrize(
    "peer",
    [
        "basic",
        pytest.param("joblib", marks=pytest.mark.skipif(not there("hydra_joblib_launcher"), reason="no .[peers]")),
        pytest.param("submitit", marks=pytest.mark.skipif(not there("hydra_submitit_launcher"), reason="no .[peers]")),
    ],
)
def test_what_other_launchers_do(tmp_path: Path, peer: str) -> None:
    """Hydra's go on beside a failure, repeat what was done, and leave their ranks; the figures are counted by ranks."""
    small = ["--points", "2", "--seconds", "0", "--slots", "1", "--repeats", "0", "--grace", "1"]
    done = run(tmp_path, "peers", "--launchers", peer, *small)
    assert done.returncode == 0, done.stderr
    ((_, beside, status, left, again, equal),) = table(done.stdout, "kill -9")
    assert (beside, status, again, equal) == ("1 of 1", "1", "2 of 2", "2")
    assert int(left) >= 2  # mpirun and its rank


@pytest.mark.mpi
def test_what_our_launcher_does(tmp_path: Path) -> None:
    small = ["--points", "2", "--seconds", "0", "--slots", "1", "--repeats", "0", "--grace", "5"]
    done = run(tmp_path, "peers", "--launchers", "gradsweep", *small)
    assert done.returncode == 0, done.stderr
    ((name, *seen),) = table(done.stdout, "kill -9")
    assert name.startswith("Gradsweep") and seen == ["1 of 1", "1", "0", "0 of 2", "1"]


@pytest.mark.mpi
def test_launchers_are_timed_beside_a_shell(tmp_path: Path) -> None:
    done = run(tmp_path, "peers", "--launchers", "basic", "--points", "2", "--seconds", "0", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    rows = table(done.stdout, "one more point")
    assert [row[0].split(",")[0].split()[0] for row in rows] == ["mpirun", "hydra-core"]
    assert [row[1] for row in rows] == ["1", "1"]  # most at once
    assert all(float(row[3]) > 0 and float(row[2]) > 0 for row in rows)
    assert rows[0][5] == "" and float(rows[1][5]) == pytest.approx(float(rows[1][4]) - float(rows[0][4]), abs=0.002)


def test_a_figure_stands_beside_what_is_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "slots", "--runs", "2", "--seconds", "0.1", "--slots", "1")
    assert done.returncode == 0 and done.stdout.startswith("slots: 2 runs of 0.1 s on 1 slots, by the ideal: ")
    wrong = run(tmp_path, "plam")
    assert wrong.returncode == 2 and "'plam'" in wrong.stderr


def test_missed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.sweeps.measuring import Finding

    assert Finding("x", 6.3, "s", 5.0).asked == "5 s at most: missed"
    assert Finding("x", 4.96, "s", 5.0).asked == "5 s at most"
    assert Finding("x", 0.0251, "s", None, "cpu 1 s").seen == "0.025 s, cpu 1 s" and Finding("x", 1.0).asked == ""
