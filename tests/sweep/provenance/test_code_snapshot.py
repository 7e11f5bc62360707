"""The code that runs is the code that was submitted."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep.errors import UsageError
from sweep.provenance import code_snapshot, file_owners, snapshot_integrity


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Four rooms with a module each, compiled files beside it, and something else."""
    root = tmp_path / "project"
    for room in code_snapshot.ROOMS:
        (root / room / snapshot_integrity.CACHE).mkdir(parents=True)
        (root / room / "one.py").write_text(f"ROOM = '{room}'\n")
        (root / room / snapshot_integrity.CACHE / "one.nbc").write_text("compiled")
    (root / "gradsweep/run_directory.py").write_text("")
    (root / "docs").mkdir()
    (root / "docs/page.md").write_text("words")
    return root


def git(project: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=project, check=True, capture_output=True)


def test_a_copy_has_the_code_and_what_was_compiled(project: Path, tmp_path: Path) -> None:
    code = code_snapshot.read(project)
    copy = code_snapshot.take(code, tmp_path / "store")
    assert code_snapshot.read(copy).digest == code.digest
    assert (copy / "trainers/one.py").read_text() == "ROOM = 'trainers'\n"
    assert (copy / "compressors/__pycache__/one.nbc").read_text() == "compiled"
    assert not (copy / "docs").exists()
    assert (copy / "trainers/one.py").stat().st_mtime_ns == (project / "trainers/one.py").stat().st_mtime_ns


def test_what_is_edited_later_is_not_in_it(project: Path, tmp_path: Path) -> None:
    copy = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    (project / "trainers/one.py").write_text("changed")
    assert (copy / "trainers/one.py").read_text() == "ROOM = 'trainers'\n"
    assert code_snapshot.take(code_snapshot.read(project), tmp_path / "store") != copy
    shutil.rmtree(project)
    assert (copy / "compressors/__pycache__/one.nbc").read_text() == "compiled"


def test_the_same_code_is_copied_once_and_takes_over_what_other_code_has_compiled(
    project: Path, tmp_path: Path
) -> None:
    first = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    (first / "trainers/__pycache__/two.nbc").write_text("compiled by the first sweep")
    assert code_snapshot.take(code_snapshot.read(project), tmp_path / "store") == first
    (project / "reports/one.py").write_text("changed")
    second = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    assert second != first and (second / "trainers/__pycache__/two.nbc").exists()


@pytest.mark.parametrize(
    ("changed", "same_version"),
    [
        ("reports/one.py", True),
        ("sweep/one.py", True),
        ("gradsweep/run_directory.py", False),
        ("trainers/one.py", False),
    ],
)
def test_the_version_is_of_what_a_result_depends_on(project: Path, changed: str, same_version: bool) -> None:
    before = code_snapshot.read(project)
    (project / changed).write_text("changed")
    after = code_snapshot.read(project)
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
    code = code_snapshot.read(project)
    assert {"trainers/one.py", "trainers/new.py"} <= set(code.files)
    assert not {"trainers/some.log", "reports/one.py"} & set(code.files)


def test_code_that_changes_while_it_is_copied_is_refused(project: Path, tmp_path: Path) -> None:
    code = code_snapshot.read(project)
    (project / "trainers/one.py").write_text("changed")
    with pytest.raises(UsageError, match="changed while it was copied"):
        code_snapshot.take(code, tmp_path / "store")
    assert [path.name for path in (tmp_path / "store").iterdir()] == [".lock"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_one_line(project: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="sweep.snapshot=true: .*Permission denied; valid is"):
        code_snapshot.take(code_snapshot.read(project), tmp_path / "store")


def test_a_store_that_is_a_file_is_one_line(project: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(UsageError, match="sweep.snapshot=true: .*exists; valid is"):
        code_snapshot.take(code_snapshot.read(project), tmp_path / "store")


@pytest.mark.parametrize(
    ("sweep", "store"), [("output/2026-11-20/14-03-22", "output/.code"), ("elsewhere/mine", "elsewhere/mine/.code")]
)
def test_sweeps_of_all_dates_share_a_store(sweep: str, store: str) -> None:
    assert code_snapshot.find_store(Path(sweep)) == Path(store)


def append(copy: Path) -> None:
    with (copy / "trainers/one.py").open("a") as file:
        file.write("raise SystemExit(3)\n")


def edit_and_set_the_time_back(copy: Path) -> None:
    path = copy / "trainers/one.py"
    before = path.stat()
    path.write_text(path.read_text().replace("trainers", "strangers"[:8]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def replace(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(copy: Path) -> None:
        (copy / name).unlink(missing_ok=True)
        make(copy / name)

    return damage


def hide_from_git(copy: Path) -> None:
    git(copy, "init", "-q")
    (copy / ".gitignore").write_text("*\n")
    (copy / "trainers/extra.py").write_text("")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "appended": append,
    "edited, time set back": edit_and_set_the_time_back,
    "a file is gone": lambda copy: (copy / "gradsweep/run_directory.py").unlink(),
    "a room is gone": lambda copy: shutil.rmtree(copy / "reports"),
    "a new module": lambda copy: (copy / "trainers/extra.py").write_text(""),
    "a module that hides one of another package": lambda copy: (copy / "torch.py").write_text(""),
    "a file that Python runs at its start": lambda copy: (copy / "sitecustomize.py").write_text(""),
    "what git is told to overlook": hide_from_git,
    "a link": replace("trainers/one.py", lambda path: path.symlink_to("/etc/passwd")),
    "a pipe": replace("trainers/one.py", os.mkfifo),
    "a directory": replace("trainers/one.py", Path.mkdir),
    "all of it is a link": lambda copy: (copy.rename(copy.with_name("moved")), copy.symlink_to("moved")),
    "all of it is a file": lambda copy: (shutil.rmtree(copy), copy.write_text("")),
    "others can write to a module": lambda copy: (copy / "trainers/one.py").chmod(0o666),
    "others can add modules": lambda copy: (copy / "trainers").chmod(0o777),
    "a compiled file is a link": lambda copy: (copy / "trainers/__pycache__/two.nbc").symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_copy_is_laid_out_anew_and_the_old_one_kept(
    project: Path, tmp_path: Path, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    code, store = code_snapshot.read(project), tmp_path / "store"
    copy = code_snapshot.take(code, store)
    damage(copy)
    assert code_snapshot.take(code, store) == copy
    assert code_snapshot.read(copy) == code_snapshot.Code(copy, code.files, code.digest, code.version)
    assert sorted(path.name for path in copy.iterdir()) == sorted(code_snapshot.ROOMS)
    (aside,) = store.glob(f".{copy.name}.*.damaged")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "laid out anew" in said and aside.name in said
    assert code_snapshot.take(code, store) == copy and not capsys.readouterr().err


def test_a_damaged_copy_whose_checkout_has_other_code_is_refused_and_left(project: Path, tmp_path: Path) -> None:
    code = code_snapshot.read(project)
    copy = code_snapshot.take(code, tmp_path / "store")
    append(copy)
    (project / "trainers/one.py").write_text("changed")
    with pytest.raises(UsageError, match="the code was changed while it was copied; start the sweep again"):
        code_snapshot.take(code, tmp_path / "store")
    assert copy.is_dir() and sorted(path.name for path in (tmp_path / "store").iterdir()) == [".lock", copy.name]


def test_nothing_of_a_damaged_copy_is_taken_over_by_other_code(project: Path, tmp_path: Path) -> None:
    first = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    (first / "trainers/__pycache__/two.nbc").write_text("compiled from what was appended")
    append(first)
    (project / "reports/one.py").write_text("changed")
    second = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    assert not (second / "trainers/__pycache__/two.nbc").exists()


def test_nobody_else_can_write_to_a_copy_whatever_the_umask(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0)
    try:
        (project / "trainers/one.py").chmod(0o666)
        copy = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
        (copy / "trainers/__pycache__/two.nbc").write_text("compiled by a rank")  # which nobody else gets to
        assert code_snapshot.take(code_snapshot.read(project), tmp_path / "store") == copy
    finally:
        os.umask(before)
    assert not capsys.readouterr().err
    for path in [copy.parent, copy, *copy.rglob("*")]:
        assert path.parent.name == snapshot_integrity.CACHE or not path.stat().st_mode & snapshot_integrity.OTHERS_WRITE
    assert all(not path.stat().st_mode & 0o077 for path in copy.rglob(snapshot_integrity.CACHE))


def test_an_older_copy_into_whose_compiled_files_others_may_have_written_is_laid_out_anew(
    project: Path, tmp_path: Path
) -> None:
    copy = code_snapshot.take(code_snapshot.read(project), tmp_path / "store")
    (copy / "trainers/__pycache__").chmod(0o755)
    foreign = copy / "trainers/__pycache__/two.nbc"
    foreign.write_text("compiled")
    foreign.chmod(0o664)
    assert code_snapshot.take(code_snapshot.read(project), tmp_path / "store") == copy and not foreign.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("what", ["", "{copy}", "{copy}/trainers/one.py", "{copy}/trainers/__pycache__/one.nbc"])
def test_a_strangers_copy_is_refused_unless_it_is_trusted(
    project: Path, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, store = code_snapshot.read(project), tmp_path / "store"
    copy = code_snapshot.take(code, store)
    path = store / what.format(copy=copy.name)
    (copy / "trainers/__pycache__/one.nbc").unlink()  # it has another name in the project
    (copy / "trainers/__pycache__/one.nbc").write_text("")
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match=r"^sweep.snapshot=true: .* belongs to uid 12345, .*; valid is .*--trust.*$"):
        code_snapshot.take(code, store)
    monkeypatch.setattr(file_owners, "_trusts_everybody", True)
    assert code_snapshot.take(code, store) == copy


def test_whoever_loads_from_a_copy_finds_it_while_it_is_laid_out_anew(project: Path, tmp_path: Path) -> None:
    code = code_snapshot.read(project)
    copy = code_snapshot.take(code, tmp_path / "store")
    (one, other) = (tmp_path / "one", tmp_path / "other")
    one.mkdir(), other.mkdir()
    if not code_snapshot._exchange(one, other):
        pytest.skip("this file system swaps no names")
    over, missed = threading.Event(), []

    def load() -> None:
        while not over.is_set():
            if not (copy / "trainers/one.py").is_file():
                missed.append(1)

    reader = threading.Thread(target=load)
    reader.start()
    for _ in range(30):
        append(copy)
        code_snapshot.take(code, tmp_path / "store")
    over.set()
    reader.join()
    assert not missed


def test_a_copy_is_laid_out_anew_where_no_names_can_be_swapped(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_snapshot.read(project)
    copy = code_snapshot.take(code, tmp_path / "store")
    append(copy)
    monkeypatch.setattr(code_snapshot, "_exchange", lambda one, other: False)
    assert code_snapshot.read(code_snapshot.take(code, tmp_path / "store")).digest == code.digest


def test_an_attempt_starts_from_no_changed_copy(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is mended where the launcher's own checkout is what it was, else the attempt has a reason not to begin."""
    code = code_snapshot.read(project)
    monkeypatch.setattr(code_snapshot, "read_current", lambda: code)
    copy = code_snapshot.take(code, tmp_path / code_snapshot.STORE)
    assert code_snapshot.explain_unfit(str(copy)) is None and code_snapshot.explain_unfit(None) is None
    append(copy)
    assert code_snapshot.explain_unfit(str(copy)) is None and code_snapshot.read(copy).digest == code.digest
    append(copy)
    (project / "trainers/one.py").write_text("changed")
    assert "not the ones that it was made of; a resume" in (code_snapshot.explain_unfit(str(copy)) or "")


def test_a_store_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").symlink_to("elsewhere")
    with pytest.raises(UsageError, match="a symbolic link, which is not followed"):
        code_snapshot.take(code_snapshot.read_current(), tmp_path / "store")
    assert not list((tmp_path / "elsewhere").iterdir())
