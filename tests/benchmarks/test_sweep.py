"""benchmarks/sweep.py does what it says: the comparison with other launchers, in small."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.sweeps.launchers import LAUNCHERS, Ended, Side
from benchmarks.sweeps.measuring import Finding
from benchmarks.sweeps.peer_times import HEADINGS, Times
from tests.conftest import ROOT

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


def needs_peer(package: str) -> pytest.MarkDecorator:
    """Skip where a package of the extra `peers` is not installed."""
    try:
        is_installed = importlib.util.find_spec(f"hydra_plugins.{package}") is not None
    except ModuleNotFoundError:
        is_installed = False
    return pytest.mark.skipif(not is_installed, reason="no .[peers]")


SMALL = ["--points", "2", "--seconds", "0", "--slots", "1", "--repeats", "0"]


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(
    "peer",
    [
        "basic",
        pytest.param("joblib", marks=[pytest.mark.slow, needs_peer("hydra_joblib_launcher")]),
        pytest.param("submitit", marks=[pytest.mark.slow, needs_peer("hydra_submitit_launcher")]),
    ],
)
def test_what_other_launchers_do(tmp_path: Path, peer: str) -> None:
    """Hydra's go on beside a failure, repeat what was done, and leave their ranks; the figures are counted by ranks."""
    done = run(tmp_path, "peers", "--launchers", peer, *SMALL, "--grace", "1")
    assert done.returncode == 0, done.stderr
    ((_, beside, status, left, again, equal),) = table(done.stdout, "kill -9")
    assert (beside, status, again, equal) == ("1 of 1", "1", "2 of 2", "2")
    assert int(left) >= 2  # mpirun and its rank


@pytest.mark.thorough
@pytest.mark.mpi
def test_what_our_launcher_does(tmp_path: Path) -> None:
    done = run(tmp_path, "peers", "--launchers", "gradsweep", *SMALL, "--grace", "5")
    assert done.returncode == 0, done.stderr
    ((name, *seen),) = table(done.stdout, "kill -9")
    assert name.startswith("Gradsweep") and seen == ["1 of 1", "1", "0", "0 of 2", "1"]


class PlayedSweep:
    """A sweep whose points take `seconds` each behind a start of a second, one after the other."""

    def __init__(self, points: Sequence[int], seconds: float) -> None:
        self.points, self.seconds = points, seconds

    def run(self) -> Ended:
        wall = 1.0 + self.seconds * len(self.points)
        return Ended(wall, wall / 2, 0, "")

    def marks(self, kind: str) -> list[tuple[int, float]]:
        return [(point, 0.0) for point in self.points]

    def most_at_once(self) -> int:
        return 1


class PlayedPlace:
    """Where bare mpirun takes a quarter of a second for a point, and a launcher half a second."""

    def sweep(self, side: Side, points: Sequence[int]) -> PlayedSweep:
        return PlayedSweep(points, 0.25 if side.launcher is None else 0.5)


def test_launchers_are_timed_beside_a_shell() -> None:
    shell, ours = Side(None, 1), Side(LAUNCHERS["gradsweep"], 1)
    times = Times(PlayedPlace(), [shell, ours], points=4, repeats=2)  # type: ignore[arg-type]
    assert times.beyond(ours) == pytest.approx(0.25)
    rows = list(times.rows())
    assert [row[1:] for row in rows] == [
        ["1", "2.00", "3.00", "0.250", "", "0.125"],
        ["1", "3.00", "5.00", "0.500", "0.250", "0.250"],
    ]
    assert len(rows[0]) == len(HEADINGS)


def test_a_figure_stands_beside_what_is_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "slots", "--runs", "2", "--seconds", "0.1", "--slots", "1")
    assert done.returncode == 0 and done.stdout.startswith("slots: 2 runs of 0.1 s on 1 slots, by the ideal: ")
    wrong = run(tmp_path, "plam")
    assert wrong.returncode == 2 and "'plam'" in wrong.stderr


def test_missed_is_said() -> None:
    assert Finding("x", 6.3, "s", 5.0).asked == "5 s at most: missed"
    assert Finding("x", 4.96, "s", 5.0).asked == "5 s at most"
    assert Finding("x", 0.0251, "s", None, "cpu 1 s").seen == "0.025 s, cpu 1 s" and Finding("x", 1.0).asked == ""
