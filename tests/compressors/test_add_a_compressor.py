"""The page docs/guide/add-a-compressor.md: what it shows works in a copy of the project, without another edit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compressors import registry
from tests.conftest import ROOT

pytestmark = pytest.mark.thorough

PAGE = ROOT / "docs/guide/add-a-compressor.md"
NAME = "chunk_top"
NEEDED = (
    *("gradsweep", "compressors", "trainers", "sweep", "reports", "hydra_plugins", "conf", "tests", "docs"),
    *("README.md", "multirun.py", "pyproject.toml", "conftest.py"),
)


def block(language: str) -> str:
    """The one block of the page in this language."""
    (found,) = re.findall(f"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the method of the page."""
    root = tmp_path_factory.mktemp("copy")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns(".compiling"))
        else:
            shutil.copy2(ROOT / name, root / name)
    (root / "compressors" / "sparsification" / "chunks.py").write_text(block("python"), encoding="utf-8")
    (root / "conf" / "compressor" / f"{NAME}.yaml").write_text(block("yaml"), encoding="utf-8")
    return root


def run(copy: Path, *arguments: str) -> str:
    """Output of a Python command in the copy, which must succeed."""
    wide = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([sys.executable, *arguments], cwd=copy, env=wide, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def test_it_is_new_and_short() -> None:
    assert NAME not in registry()
    assert len(block("python").splitlines()) < 40


@pytest.mark.slow
def test_the_conformance_suite_picks_it_up_and_passes(copy: Path) -> None:
    names = (
        "compressors/conformance/test_promises.py",
        "compressors/conformance/test_laws.py",
        "compressors/conformance/test_corruption.py",
        "tests/compressors/memories/test_memory.py",
    )
    output = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names, "-k", NAME)
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed[1]) > 30, output


def test_the_command_line_picks_it_up(copy: Path) -> None:
    assert "chunk: 100" in run(copy, "multirun.py", f"compressor={NAME}", "--cfg", "job")
    assert "neighbours of which one is kept" in run(copy, "-m", "compressors", "show", NAME)
    assert "WRONG" not in run(copy, "-m", "compressors", "check", NAME, f"{NAME},chunk=7", "--draws", "30")


def test_the_yaml_has_the_defaults_of_the_class(copy: Path) -> None:
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_multirun.py", "-k", "yaml_of_a_part")


def test_the_pages_are_as_tests_want_them_after_the_commands(copy: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = [line.split() for line in re.findall(r"^python (-m .* --into .*|docs/.*)$", text, re.MULTILINE)]
    written = ("compressors.md", "compatibility.md", "generate.py")
    assert {command[-1] for command in commands} == {f"docs/reference/{name}" for name in written}
    for command in commands:
        run(copy, *command)
    page = copy / "docs/reference/compressors.md"
    before, row, after = page.read_text(encoding="utf-8").rpartition("| `topk` | the k largest")
    page.write_text(f"{before}| `{NAME}` | one element of every chunk | | |\n{row}{after}", encoding="utf-8")
    assert f"| `{NAME}` |" in (copy / "docs/reference/compressors.md").read_text(encoding="utf-8")
    tests = ["tests/test_docs.py", "-k", "is_the_programs or compressor_sends or up_to_date"]
    assert "6 passed" in run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def test_it_is_clean(copy: Path) -> None:
    for command in (("ruff", "check"), ("ruff", "format", "--check")):
        run(copy, "-m", *command, "compressors/sparsification/chunks.py")
