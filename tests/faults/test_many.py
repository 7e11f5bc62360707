"""Many runs that take no time: nothing is lost, and nothing is left."""

from __future__ import annotations

import pytest

from gradsweep import run_directory
from tests.faults.conftest import StandInOf, attempts

pytestmark = pytest.mark.thorough

AT_ONCE = """echo '{"status": "done", "accuracy": 0.5}' > "$4/result.json"; echo once >> "$4/completed" """


@pytest.mark.parametrize("points", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_points_of_no_seconds(stand_in: StandInOf, points: int) -> None:
    sweep = stand_in(AT_ONCE, points)
    launcher = sweep.start()
    out, _ = launcher.communicate(timeout=1800)
    assert launcher.returncode == 0, out
    assert f"[{points}/{points}]" in out
    sweep.nothing_is_left()
    assert len(sweep.runs) == points
    for run in sweep.runs:
        assert run.status() == run_directory.DONE and attempts(run) == [("done", None)]
        assert run.path("completed").read_text() == "once\n"
