"""Processes are found by their mark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sweep.system.processes import ATTEMPT_VARIABLE, find_processes, kill_processes


def test_processes_are_found_by_any_path_of_their_directory(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, ATTEMPT_VARIABLE: str(real / "attempt-1")}) as process:
        assert find_processes(link / "attempt-1") == find_processes(real / "attempt-1") == [process.pid]
        assert find_processes(tmp_path / "attempt-1") == []
        kill_processes(link / "attempt-1")
    assert process.returncode == -9
