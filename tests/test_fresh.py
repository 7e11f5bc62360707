"""The README's commands in a fresh checkout with a fresh virtual environment, as a newcomer types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import ROOT

pytestmark = pytest.mark.fresh


def commands() -> list[str]:
    """Every line of the README's blocks marked `sh`, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines()]


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"  # a path with a space in it
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV", "OMPI_", "MAKE", "MFLAGS"))
    }
    environment["PATH"] = f"{clone}/.venv/bin:{environment['PATH']}"  # as if the environment were active
    # Within `make test` a file of each room will do: the run around this one does them all.
    # Other files are not even collected, and mypy looks again only at what is not the same in the clone.
    files = "test_architecture test_docs test_random_key test_run_directory test_targets test_flat"
    names_of_files = " ".join(f"{name}.py" for name in files.split())
    slow = "tests/test_docs.py::test_names_in_other_systems_are_commands"
    environment["PYTEST_ADDOPTS"] = f'-o python_files="{names_of_files}" --deselect {slow}'
    environment["PROCESSES"] = "1"  # each of which would load torch
    environment["PIP_NO_COMPILE"] = "0"  # which is how pip is told to: of thousands of modules few are imported
    environment["MYPY_CACHE_DIR"] = str(ROOT / ".mypy_cache")
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    environment["PYTHON"] = str(base if base.exists() else sys.executable)
    lines = commands()
    assert "make sweep" in lines and "make test" in lines
    for line in lines:
        began = time.monotonic()
        done = subprocess.run(
            line, shell=True, cwd=clone, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        print(f"{line}: {time.monotonic() - began:.0f} s\n{done.stdout[-3000:]}")
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    sweeps = sorted(path.parent for path in clone.glob("output/*/*/sweep.yaml"))
    nine = runs_of(sweeps[0])
    assert len(nine) == 9 and {run.status() for run in nine} == {run_directory.DONE}
    for run in nine:
        result = run.result()
        assert result is not None and result["accuracy"] >= 0.95, run.name
    assert [len(runs_of(sweep)) for sweep in sweeps] == [9, 1, 3]  # the resume made no sweep of its own
    assert yaml.safe_load((sweeps[2] / run_directory.SWEEP).read_text())["resumed"]
