"""--quiet, --json and sweep.on_end as a user types them; a shell script plays the ranks."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import PLAYED, Program, eventually

TRAIN = """#!/bin/sh
seed=$(sed -n 's/^seed: //p' "$5/config.yaml")
[ "$seed" = 2 ] && { echo why >&2; exit 3; }
[ "$seed" = 3 ] && { sleep 1000 & wait; }
echo '{"status": "done", "accuracy": 0.5}' > "$5/result.json"
"""


@pytest.fixture
def sweep(start: Callable[..., Program], tmp_path: Path) -> Callable[..., Program]:
    """A sweep over seeds in DIR/sweep: 2 fails, 3 takes for ever."""
    (tmp_path / "train.sh").write_text(TRAIN)
    os.chmod(tmp_path / "train.sh", 0o755)
    return lambda *arguments, **given: start(
        *("-m", "hydra.sweep.dir=sweep", "sweep.retries=0", "sweep.share_cores=true"),
        f"mpi.command=[{tmp_path}/train.sh,'{{workers}}']",
        *arguments,
        **given,
    )


@pytest.mark.thorough
def test_quiet_is_what_failed_and_a_last_line(sweep: Callable[..., Program], tmp_path: Path) -> None:
    code, out, err = sweep("--quiet", "seed=1,2", without=["data"]).end(240)
    assert (code, err) == (1, "")
    failed, *shown, last = out.splitlines()
    assert failed.startswith("[") and "failed  seed=2-" in failed
    assert shown[0] == "" and shown[1].startswith("failed: sweep/runs/seed=2-") and "  | why" in shown
    assert last.startswith("sweep: 1 done, 1 failed, ") and len(shown) < 9
    assert all(run.name.startswith("seed=") for run in runs_of(tmp_path / "sweep"))
    assert (tmp_path / "sweep/report.html").is_file()


def test_an_interrupted_sweep_is_told_of(sweep: Callable[..., Program], tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = sweep(
        *("--json", "seed=1,3"),
        f"sweep.on_end=[sh,-c,'echo $0 $GRADSWEEP_EXIT_STATUS >> {told}','{{status}}']",
        without=PLAYED,
    )
    events = tmp_path / "sweep" / run_directory.EVENTS
    eventually(lambda: events.exists() and events.read_text().count("run_started") == 2, 240)
    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end(240)
    assert code == 130 and "To go on:" in err
    lines = [json.loads(line) for line in out.splitlines()]
    assert out == events.read_text()
    assert (lines[0]["event"], lines[-1]["event"]) == ("sweep_started", "sweep_ended")
    assert (lines[-1]["status"], lines[-1]["exit_status"]) == ("interrupted", 130)
    assert lines[-1]["counts"][run_directory.CANCELLED] >= 1
    assert [line["event"] for line in lines].count("run_ended") == 2
    assert told.read_text() == "interrupted 130\n"
