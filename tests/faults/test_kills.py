"""kill -9 at random moments of a sweep, of a rank, mpirun or the launcher: after a resume every run is done, once."""

from __future__ import annotations

import csv
import os
import random
import signal
import time
from pathlib import Path

import pytest

from gradsweep import run_directory
from sweep.system.processes import find_processes
from tests.faults.conftest import StandIn, StandInOf, ranks

pytestmark = pytest.mark.thorough

POINTS, ROWS = 12, 8
SHORT, LONG = range(5), range(5, 55)


def victim(sweep: StandIn, launcher: int, what: str) -> int:
    """A process of the kind; the launcher where there is none at this moment."""
    for run in sweep.runs:
        state = run.state()
        if state["status"] == run_directory.RUNNING:
            mpirun = state["attempts"][-1]["pid"]
            found = find_processes(run.attempt(state["attempts"][-1]["number"]).absolute())
            of_kind = [pid for pid in found if (pid == mpirun) == (what == "mpirun")]
            if what != "launcher" and of_kind:
                return of_kind[0]
    return launcher


@pytest.mark.parametrize(
    "seed", [*SHORT, *(pytest.param(seed, marks=pytest.mark.slow) for seed in LONG)], ids=lambda seed: f"seed{seed}"
)
def test_every_run_is_done_once_whoever_is_killed(stand_in: StandInOf, seed: int) -> None:
    draw = random.Random(seed)
    sweep = stand_in(ranks(ROWS, 0.02, workers=2), POINTS)
    launcher = sweep.start()
    time.sleep(draw.uniform(0.2, 3.0))
    if launcher.poll() is None:
        os.kill(victim(sweep, launcher.pid, draw.choice(["launcher", "mpirun", "rank"])), signal.SIGKILL)
    out, _ = launcher.communicate(timeout=300)

    code, resumed = sweep.finish()
    assert code == 0, out + resumed
    for run in sweep.runs:
        assert run.status() == run_directory.DONE and run.result() is not None
        assert run.state()["attempts"][-1]["status"] == run_directory.DONE
        assert run.path("completed").read_text() == "once\n" and not run.path("begun-again").exists()
        assert whole(run.path(run_directory.STEPS))
        assert not list(run.directory.glob(".*"))  # parts of files


def whole(path: Path) -> bool:
    """Whether a steps.csv has all rows, each once and none torn."""
    rows = list(csv.DictReader(path.open(newline="")))
    return [row["step"] for row in rows] == [str(step) for step in range(1, ROWS + 1)] and {
        row["loss"] for row in rows
    } == {"1.5" * 40}
