"""Our C programs: compiled once for a user, by whoever needs them first; a plain reason where they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.emulation import compile_c
from sweep.provenance import code_snapshot
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(compile_c.find_compiler() is None, reason="no C compiler")


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a compiler from then on."""
    first = compile_c.compile_program("switch", tmp_path)
    assert first.parent == tmp_path / "cache/gradsweep"
    monkeypatch.setattr(compile_c, "find_compiler", lambda: None)
    assert compile_c.compile_program("switch", tmp_path) == first
    assert [path.name for path in first.parent.iterdir()] == [first.name], "nothing half-done lies there"
    with pytest.raises(compile_c.NotCompiled, match=r"^no C compiler \(package gcc\)$"):
        compile_c.compile_program("idle", tmp_path)


def test_another_source_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_c, "SOURCES", tmp_path)
    (tmp_path / "idle.c").write_text("int one;")
    first = compile_c.compile_program("idle", tmp_path)
    (tmp_path / "idle.c").write_text("int two;")
    assert compile_c.compile_program("idle", tmp_path) != first


def test_by_two_at_once(tmp_path: Path) -> None:
    code = (
        "import pathlib; from sweep.emulation.compile_c import compile_program\n"
        "print(compile_program('switch', pathlib.Path.cwd()))"
    )
    command = [sys.executable, "-c", code]
    given = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **given) for _ in range(2)]  # type: ignore[call-overload]
    (one, _), (other, _) = (each.communicate(timeout=120) for each in both)
    assert one == other != ""
    assert subprocess.run([one.strip()]).returncode == 2, "it is whole: without interfaces it says that it needs some"


def test_where_the_cache_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, no directory")
    assert compile_c.compile_program("idle", tmp_path).parent == tmp_path


def test_the_reason_of_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_c, "SOURCES", tmp_path)
    (tmp_path / "idle.c").write_text("#include <no_such_file.h>\n")
    with pytest.raises(
        compile_c.NotCompiled, match=r"cannot compile idle.c: .*no_such_file.h.*\(packages gcc and libc6-dev\)"
    ):
        compile_c.compile_program("idle", tmp_path)
    assert list((tmp_path / "cache/gradsweep").iterdir()) == []


def test_the_sources_travel_with_the_code() -> None:
    """In the copy that runs start from, and in the wheel; what is emulated is a part of what a run computes."""
    for name in compile_c.FLAGS:
        assert f"sweep/emulation/{name}.c" in code_snapshot.read_current().files
    (line,) = [each for each in (ROOT / "pyproject.toml").read_text().splitlines() if each.startswith('"*" = ')]
    assert '"*.c"' in line
    assert "sweep/emulation/" in code_snapshot.COMPUTING
