"""The code that runs is the code that was submitted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sweep import snapshot
from sweep.run import UsageError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Four rooms with a module each, compiled files beside it, and something else."""
    root = tmp_path / "project"
    for room in snapshot.ROOMS:
        (root / room / snapshot.CACHE).mkdir(parents=True)
        (root / room / "one.py").write_text(f"ROOM = '{room}'\n")
        (root / room / snapshot.CACHE / "one.nbc").write_text("compiled")
    (root / "sweep/run.py").write_text("")
    (root / "docs").mkdir()
    (root / "docs/page.md").write_text("words")
    return root


def git(project: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=project, check=True, capture_output=True)


def test_a_copy_has_the_code_and_what_was_compiled(project: Path, tmp_path: Path) -> None:
    code = snapshot.read(project)
    copy = snapshot.take(code, tmp_path / "store")
    assert snapshot.read(copy).digest == code.digest
    assert (copy / "trainers/one.py").read_text() == "ROOM = 'trainers'\n"
    assert (copy / "compressors/__pycache__/one.nbc").read_text() == "compiled"
    assert not (copy / "docs").exists()
    assert (copy / "trainers/one.py").stat().st_mtime_ns == (project / "trainers/one.py").stat().st_mtime_ns


def test_what_is_edited_later_is_not_in_it(project: Path, tmp_path: Path) -> None:
    copy = snapshot.take(snapshot.read(project), tmp_path / "store")
    (project / "trainers/one.py").write_text("changed")
    assert (copy / "trainers/one.py").read_text() == "ROOM = 'trainers'\n"
    assert snapshot.take(snapshot.read(project), tmp_path / "store") != copy
    shutil.rmtree(project)
    assert (copy / "compressors/__pycache__/one.nbc").read_text() == "compiled"


def test_the_same_code_is_copied_once_and_takes_over_what_other_code_has_compiled(
    project: Path, tmp_path: Path
) -> None:
    first = snapshot.take(snapshot.read(project), tmp_path / "store")
    (first / "trainers/__pycache__/two.nbc").write_text("compiled by the first sweep")
    assert snapshot.take(snapshot.read(project), tmp_path / "store") == first
    (project / "reports/one.py").write_text("changed")
    second = snapshot.take(snapshot.read(project), tmp_path / "store")
    assert second != first and (second / "trainers/__pycache__/two.nbc").exists()


@pytest.mark.parametrize(
    ("changed", "same_version"),
    [("reports/one.py", True), ("sweep/one.py", True), ("sweep/run.py", False), ("trainers/one.py", False)],
)
def test_the_version_is_of_what_a_result_depends_on(project: Path, changed: str, same_version: bool) -> None:
    before = snapshot.read(project)
    (project / changed).write_text("changed")
    after = snapshot.read(project)
    assert after.digest != before.digest and (after.version == before.version) == same_version


def test_of_a_checkout_uncommitted_and_new_files_count_but_not_what_git_ignores(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.log\n__pycache__\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "all")
    (project / "trainers/one.py").write_text("uncommitted")
    (project / "trainers/new.py").write_text("new")
    (project / "trainers/some.log").write_text("noise")
    (project / "reports/one.py").unlink()
    code = snapshot.read(project)
    assert {"trainers/one.py", "trainers/new.py"} <= set(code.files)
    assert not {"trainers/some.log", "reports/one.py"} & set(code.files)


def test_code_that_changes_while_it_is_copied_is_refused(project: Path, tmp_path: Path) -> None:
    code = snapshot.read(project)
    (project / "trainers/one.py").write_text("changed")
    with pytest.raises(UsageError, match="changed while it was copied"):
        snapshot.take(code, tmp_path / "store")
    assert [path.name for path in (tmp_path / "store").iterdir()] == [".lock"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_one_line(project: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="sweep.snapshot=true: .*Permission denied; valid is"):
        snapshot.take(snapshot.read(project), tmp_path / "store")


def test_a_store_that_is_a_file_is_one_line(project: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(UsageError, match="sweep.snapshot=true: .*exists; valid is"):
        snapshot.take(snapshot.read(project), tmp_path / "store")


@pytest.mark.parametrize(
    ("sweep", "store"), [("output/2026-11-20/14-03-22", "output/.code"), ("elsewhere/mine", "elsewhere/mine/.code")]
)
def test_sweeps_of_all_dates_share_a_store(sweep: str, store: str) -> None:
    assert snapshot.store_for(Path(sweep)) == Path(store)
