"""Fresh virtual environments: the README's commands in a fresh checkout, and a wheel, as newcomers type them."""

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
from sweep.emulation.capability_check import try_emulation
from sweep.provenance import code_snapshot
from tests import plugin_distribution
from tests.conftest import ROOT

pytestmark = pytest.mark.fresh


def commands() -> list[str]:
    """Every line of the README's blocks marked `sh`, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines()]


def clone_checkout(clone: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)


def activate(virtual_environment: Path) -> dict[str, str]:
    """The variables of a shell in which a virtual environment is active, and nothing of this process's."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV", "OMPI_", "MAKE", "MFLAGS"))
    }
    return {**environment, "PATH": f"{virtual_environment}/bin:{environment['PATH']}"}


def find_python() -> str:
    """The Python that made this one's virtual environment."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(base if base.exists() else sys.executable)


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"  # a path with a space in it
    clone_checkout(clone)
    environment = activate(clone / ".venv")
    # Within `make test` a file of each room will do: the run around this one does them all.
    # Other files are not even collected, and mypy looks again only at what is not the same in the clone.
    files = "test_architecture test_docs test_random_key test_run_directory test_targets test_flat"
    names_of_files = " ".join(f"{name}.py" for name in files.split())
    slow = "tests/test_docs.py::test_names_in_other_systems_are_commands"
    environment["PYTEST_ADDOPTS"] = f'-o python_files="{names_of_files}" --deselect {slow}'
    environment["PROCESSES"] = "1"  # each of which would load torch
    environment["PIP_NO_COMPILE"] = "0"  # which is how pip is told to: of thousands of modules few are imported
    environment["MYPY_CACHE_DIR"] = str(ROOT / ".mypy_cache")
    environment["PYTHON"] = find_python()
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
    first = runs_of(sweeps[0])
    emulated = [run for run in first if "network=ethernet_100m" in run.name]
    assert len(first) - len(emulated) == 9 and {run.status() for run in first} == {run_directory.DONE}
    assert len(emulated) == (0 if try_emulation().get("problem") else 3), "a kernel without emulation leaves them out"
    for run in first:
        result = run.result()
        assert result is not None and result["accuracy"] >= 0.95, run.name
    assert [len(runs_of(sweep)) for sweep in sweeps[1:]] == [3]  # the resume made no sweep of its own


def test_a_wheel_sweeps_from_an_empty_directory(tmp_path: Path) -> None:
    """What is installed is what running needs, and nothing that only tests need."""
    clone, place, empty = tmp_path / "clone", tmp_path / "a place", tmp_path / "empty"
    clone_checkout(clone)
    empty.mkdir()
    environment = activate(place)

    def run(*words: str, cwd: Path = empty) -> str:
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200
        )
        print(f"{' '.join(words)}: {time.monotonic() - began:.0f} s\n{done.stdout[-2000:]}")
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    run(find_python(), "-m", "venv", str(place))
    run("pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(clone))
    (wheel,) = tmp_path.glob("*.whl")
    run("pip", "install", "--no-compile", "-c", str(clone / "constraints.txt"), str(wheel))
    code = code_snapshot.read(clone)
    subprocess.run(["rm", "-r", str(clone)], check=True)
    distributions = run("pip", "list", "--format=freeze").split()
    assert len(distributions) < 65 and not [name for name in distributions if name.startswith(("pytest", "mypy"))]
    assert run("gradsweep", "--version").startswith("gradsweep ")
    run("gradsweep", "-m", "compressor=qsgd,none", "workers=2", "max_steps=20", "race=off")
    (sweep,) = (path.parent for path in empty.glob("output/*/*/sweep.yaml"))
    assert [run.status() for run in runs_of(sweep)] == [run_directory.DONE] * 2
    assert (sweep / "report.html").is_file()
    described = yaml.safe_load((sweep / run_directory.SWEEP).read_text())
    assert described["command"].startswith("gradsweep -m compressor=qsgd,none") and described["git"] is None
    assert described["code"]["version"] == code.version  # results of a checkout can be reused
    (copy,) = (path for path in empty.glob("output/.code/*") if path.is_dir())
    assert code_snapshot.read(copy).digest == described["code"]["digest"]
    assert "2 done" in run("gradsweep", "status") and sweep.name in run("gradsweep", "list")
    run("gradsweep", "report", str(sweep))

    # a distribution beside the wheel: its model, data set, task and compressor, found by entry points
    plugin_distribution.write_project(tmp_path / "plugin")
    run("pip", "install", "--no-deps", str(tmp_path / "plugin"))
    words = ["model=perceptron", "dataset=stripes", "task=custom", "task.target=my_plugin.tasks:Smooth", "race=off"]
    run("gradsweep", "-m", "compressor=chunk_top,none", *words, "workers=2", "epochs=1", "hydra.sweep.dir=own")
    owns = runs_of(empty / "own")
    assert [run.status() for run in owns] == [run_directory.DONE] * 2
    assert all("top3" in (run.result() or {})["metrics"] for run in owns)
    assert "my-plugin" in (owns[0].attempt(1) / run_directory.PROVENANCE).read_text()
