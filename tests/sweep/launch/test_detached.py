"""sweep.wait=false as a user types it: the command ends, its terminal is closed, the sweep goes on."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from gradsweep.sweeps.sweep_lock import read_lock_owner
from tests.conftest import ROOT, eventually
from tests.sweep.fakes import SLEEP, end_launcher

PROGRAM = [sys.executable, str(ROOT / "tests/without.py"), "data"]
GRID = ["-m", "hydra.sweep.dir=sweep", "experiment=quick", "seed=1,2", "workers=1", "sweep.wait=false"]


def commands(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "sweep", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """A launcher in the background ends with its test."""
    yield
    end_launcher(tmp_path / "sweep")


@pytest.mark.thorough
def test_a_sweep_outlives_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "rank.sh").write_text(f"{SLEEP}\n")
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, *GRID, 'mpi.command=[sh,rank.sh,"{workers}"]'],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    said = b""
    while b"launcher.log" not in said:
        said += os.read(ours, 65536)
    assert program.wait(60) == 0
    os.close(ours)  # whoever belongs to the terminal gets SIGHUP now
    text = said.decode().replace("\r\n", "\n")
    assert "2 of 2 runs to do" in text and "python -m sweep watch sweep" in text
    runs = runs_of(tmp_path / "sweep")
    eventually(lambda: runs[0].status() == run_directory.RUNNING)
    by = read_lock_owner(tmp_path / "sweep")
    assert by is not None and f"pid {by['pid']}" in text and by["pid"] != program.pid

    again = subprocess.run([*PROGRAM, *GRID[:-1]], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 2 and "another process is running this sweep" in again.stderr
    cancelled = commands(tmp_path, "cancel", "sweep")
    assert (cancelled.returncode, cancelled.stderr) == (0, "")
    assert [run.status() for run in runs] == [run_directory.CANCELLED] * 2
    eventually(lambda: read_lock_owner(tmp_path / "sweep") is None)
    assert "To compute only what is missing" in (tmp_path / "sweep/launcher.log").read_text()

    (tmp_path / "rank.sh").write_text("""echo '{"status": "done"}' > "$5/result.json"\n""")
    resumed = commands(tmp_path, "resume", "sweep")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert [run.status() for run in runs] == [run_directory.DONE] * 2
    assert (tmp_path / "sweep/report.html").is_file()
