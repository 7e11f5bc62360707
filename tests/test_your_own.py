"""docs/guide/your-own.md as it stands: its files are saved, its commands are typed, and its sweeps have results."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.files import read_json
from gradsweep.run_directory import Run
from tests.conftest import ROOT
from tests.plugin_distribution import CHUNK_TOP

PAGE = (ROOT / "docs" / "guide" / "your-own.md").read_text(encoding="utf-8")
MOST_LINES = 60
PROGRAM = shlex.join([sys.executable, str(ROOT / "multirun.py")])


def list_files() -> dict[str, str]:
    """The blocks of code of the page, by the name of the last file that the text before them tells to save."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$|Save [\w ]*as ([\w./-]+\w)", PAGE, re.DOTALL | re.MULTILINE)
    files, name = {}, ""
    for code, saved in blocks:
        name = saved or name
        if code:
            files[name] = code
    assert re.search(r"\(add-a-compressor.md#the-class\) as chunks.py", PAGE)
    return files | {"chunks.py": CHUNK_TOP}


def list_commands() -> list[str]:
    """The lines of the page that are indented, with those that they go on with."""
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
    return [line.strip() for line in re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) < MOST_LINES
    assert list_files().keys() >= {"mine.py"} and list_commands()


@pytest.mark.thorough
def test_the_page_is_a_sweep_in_a_directory_of_ones_own(tmp_path: Path) -> None:
    for name, code in list_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    for command in list_commands():
        typed = re.sub(r"^gradsweep(?= -m | \w+=)", PROGRAM, command)
        done = subprocess.run(["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    sweeps = sorted(path.parent for path in (tmp_path / "output").glob(f"*/*/{run_directory.SWEEP}"))
    runs = [run for sweep in sweeps for run in run_directory.runs_of(sweep)]
    assert len(runs) >= 2 and {run.status() for run in runs} == {run_directory.DONE}
    for run in runs:
        (first, *_) = csv.DictReader(run.path(run_directory.EPOCHS).open())
        assert 0 < float(first["test_top3"]) <= 1 and 0 < read_top3(run) <= 1
    (row, *_) = csv.DictReader((sweeps[0] / run_directory.SUMMARY).open())
    (run,) = [run for run in runs if run.name == row["run"]]
    assert float(row["metric.top3"]) == read_top3(run)


def read_top3(run: Run) -> float:
    return float((read_json(run.path(run_directory.RESULT)) or {})["metrics"]["top3"])
