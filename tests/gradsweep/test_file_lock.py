"""Locks with and without flock: one process has it, and it ends with that process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from gradsweep.disk import file_lock, soft_lock
from gradsweep.errors import UsageError
from gradsweep.sweeps.sweep_lock import hold_unlocked, read_lock_owner
from gradsweep.text import describe_lock_owner
from sweep.directory.sweep_directory import LOCK, Sweep
from sweep.executors.slots import LockedSlots
from tests.conftest import ROOT

BROKEN = ROOT / "tests/faults/broken"


def fail(number: int) -> Callable[..., None]:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.fixture(params=[0, *file_lock.NO_LOCKS], ids=lambda number: errno.errorcode.get(number, "flock"))
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with locks, and those without."""
    if request.param:
        monkeypatch.setattr(fcntl, "flock", fail(request.param))
        monkeypatch.setattr(file_lock, "_told", [])


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", fail(errno.ENOLCK))
    monkeypatch.setattr(file_lock, "_told", [])


def python(*lines: str, **environment: str) -> subprocess.Popen[str]:
    """A process on a file system without locks."""
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (BROKEN, ROOT)))}
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        env={**os.environ, "BROKEN_FLOCK": "ENOLCK", **paths, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


TAKES = (
    "import sys; from pathlib import Path; from gradsweep.disk import file_lock",
    "lock = file_lock.take(Path(sys.stdin.readline().strip()))",
    "print('has it', flush=True)",
    "sys.stdin.readline()",
)


def owner(path: Path) -> subprocess.Popen[str]:
    """A process that has the soft lock of `path`."""
    process = python(*TAKES)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{path}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "has it\n"
    return process


@pytest.mark.usefixtures("locks")
def test_a_lock_is_had_once_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not file_lock.is_held(path)
    with file_lock.take(path) as lock:
        assert file_lock.is_held(path)
        for shared in (False, True):
            with pytest.raises(BlockingIOError):
                file_lock.take(path, shared=shared)
    lock.close()
    assert not file_lock.is_held(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    file_lock.take(path).close()


@pytest.mark.usefixtures("locks")
def test_a_name_may_be_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with file_lock.take(path), pytest.raises(BlockingIOError):
        file_lock.take(path)
    file_lock.take(path, shared=True).close()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("locks")
def test_a_shared_lock_is_had_by_several(tmp_path: Path) -> None:
    path = tmp_path / "file"
    one, other = (file_lock.take(path, shared=True) for _ in range(2))
    assert file_lock.is_held(path, shared=True) and not file_lock.is_held(path)
    one.close()
    with pytest.raises(BlockingIOError):
        file_lock.take(path)
    other.close()
    assert not file_lock.is_held(path, shared=True)
    file_lock.take(path).close()


@pytest.mark.usefixtures("no_locks")
def test_a_line_says_that_there_are_no_locks_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        file_lock.take(tmp_path / name).close()
    said = capsys.readouterr().err
    assert said == f"{tmp_path}: this file system has no locks; files .soft-* say which process has one\n"


@pytest.mark.usefixtures("no_locks")
def test_who_was_killed_has_no_lock(tmp_path: Path) -> None:
    """Also as long as its parent has not asked how it ended."""
    path = tmp_path / "file"
    process = owner(path)
    with pytest.raises(BlockingIOError):
        file_lock.take(path)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not file_lock.is_held(path)
    with file_lock.take(path):
        assert soft_lock.owner_of(tmp_path / ".soft-file")["pid"] == os.getpid()  # type: ignore[index]
    process.wait()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    ("changed", "is_gone"),
    [({"boot": "x"}, True), ({"started": 1}, True), ({"host": "x"}, False), ({"space": "x"}, False)],
)
def test_an_owner_is_known_by_boot_and_start_and_one_that_cannot_be_seen_is_never_gone(
    tmp_path: Path, changed: dict[str, object], is_gone: bool
) -> None:
    path, soft = tmp_path / LOCK, tmp_path / f".soft-{LOCK}"
    files.write_json(path, {"host": "x", "pid": 1})
    files.write_json(soft, {**soft_lock.this_process(), **changed})
    if is_gone:
        assert read_lock_owner(tmp_path) is None
        Sweep(tmp_path, fresh=False).close()
    else:
        by = read_lock_owner(tmp_path)
        assert by is not None and describe_lock_owner(by) == f"pid 1 on x (if it has ended there, remove {soft})"
        with pytest.raises(UsageError, match=f"another process is running this sweep .*, remove {soft}"):
            Sweep(tmp_path, fresh=False)
        soft.unlink()
        assert read_lock_owner(tmp_path) is None


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"pid": "1"}', json.dumps({"host": socket.gethostname()})])
def test_a_damaged_soft_lock_is_taken_over_by_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / ".soft-file").write_text(content)
    with pytest.raises(BlockingIOError):
        file_lock.take(tmp_path / "file")
    assert file_lock.to_remove(tmp_path / "file") == tmp_path / ".soft-file"


def test_of_many_that_take_over_from_the_dead_one_has_it(tmp_path: Path) -> None:
    """They begin at once, each has what it has for a moment, and none sees another meanwhile."""
    path, count = tmp_path / "file", 6
    dead = owner(path)
    dead.kill()
    dead.wait()
    writes = (
        "import os, sys; from pathlib import Path; from gradsweep.disk import file_lock",
        f"path = Path({str(path)!r})",
        "print('ready', flush=True); sys.stdin.readline()",
        "for _ in range(25):",
        "    with file_lock.take(path, wait_s=100):",
        "        os.close(os.open(path.with_name('alone'), os.O_CREAT | os.O_EXCL))",
        "        os.unlink(path.with_name('alone'))",
    )
    several = [python(*writes) for _ in range(count)]
    for process in several:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in several:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.wait(120) for process in several] == [0] * count
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("no_locks")
def test_who_takes_over_and_is_killed_over_it_stands_in_nobodys_way(tmp_path: Path) -> None:
    """It has left the lock that it took to take over."""
    path, soft = tmp_path / "file", tmp_path / ".soft-file"
    gone = {**soft_lock.this_process(), "started": 1}
    files.write_json(soft, gone)
    files.write_json(tmp_path / f".soft-file-{gone['token']}", {**soft_lock.this_process(), "started": 2})
    file_lock.take(path).close()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


ADOPTS = (
    "import sys; from pathlib import Path; from gradsweep.disk import file_lock",
    "path, descriptor, wait = sys.argv[1:]",
    "if wait: sys.stdin.readline()",
    "lock = file_lock.adopt(Path(path), int(descriptor))",
    "print('has it', flush=True)",
    "sys.stdin.readline()",
)


@pytest.mark.usefixtures("no_locks")
def test_a_child_has_what_was_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lock = file_lock.take(path)
    child = subprocess.Popen(
        [sys.executable, "-c", "\n".join(ADOPTS), str(path), str(lock.descriptor), ""],
        env={**os.environ, "BROKEN_FLOCK": "ENOSYS", "PYTHONPATH": f"{BROKEN}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[lock.descriptor],
    )
    assert child.stdout is not None and child.stdout.readline() == b"has it\n"
    lock.close()
    with pytest.raises(BlockingIOError):
        file_lock.take(path)
    child.communicate(b"\n")
    file_lock.take(path).close()


def test_a_child_whose_parent_was_killed_does_not_adopt_what_others_may_have(tmp_path: Path) -> None:
    path = tmp_path / "file"
    adopts = "\n".join(ADOPTS)
    parent = python(
        "import subprocess, sys; from pathlib import Path; from gradsweep.disk import file_lock",
        f"path = Path({str(path)!r})",
        "lock = file_lock.take(path)",
        f"words = [sys.executable, '-c', {adopts!r}, str(path), str(lock.descriptor), 'wait']",
        "child = subprocess.Popen(words, pass_fds=[lock.descriptor])",
        "print(child.pid, flush=True); child.wait()",
    )
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdout.readline()
    parent.kill()
    parent.wait()
    parent.stdin.write("\n")
    parent.stdin.close()
    assert parent.stdout.read() == ""  # the child has ended, without the lock


@pytest.mark.usefixtures("no_locks")
def test_where_one_host_has_no_locks_the_others_see_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file_lock.take(tmp_path / "file"):
        monkeypatch.undo()
        assert file_lock.is_held(tmp_path / "file")
        with pytest.raises(BlockingIOError):
            file_lock.take(tmp_path / "file")


@pytest.mark.usefixtures("locks")
def test_a_sweep_has_one_launcher(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    sweep = Sweep(directory, fresh=False)
    by = read_lock_owner(directory)
    assert by is not None and by["pid"] == os.getpid() and "remove" not in by
    with hold_unlocked(directory) as is_free:
        assert not is_free
    with pytest.raises(UsageError, match=f"another process is running this sweep .pid {os.getpid()} on "):
        Sweep(directory, fresh=False)
    sweep.close()
    assert read_lock_owner(directory) is None and not directory.exists()
    directory.mkdir()
    (directory / LOCK).touch()
    with hold_unlocked(directory) as is_free:
        assert is_free and read_lock_owner(directory) is None
        with pytest.raises(UsageError, match="another process is running this sweep"):
            Sweep(directory, fresh=False)
    Sweep(directory, fresh=False).close()


@pytest.mark.usefixtures("locks")
def test_a_sweep_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", fresh=False)
    (sweep.directory / run_directory.SWEEP).touch()
    sweep.forget()
    sweep.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("locks")
def test_cores_are_leased_once(tmp_path: Path) -> None:
    one, other = (LockedSlots([0, 1], place=tmp_path / "slots", sweep=name) for name in ("one", "other"))
    lease = one.lease(2)
    assert lease is not None and other.lease(1) is None
    assert other.list_others() == [f"pid {os.getpid()} (one)"]
    one.release(lease)
    other._looks_at = 0.0
    again = other.lease(1)
    assert again is not None and one.lease(2) is None
    other.close()
    one._looks_at = 0.0
    assert one.lease(2) is not None
    one.close()
    sharing = LockedSlots([0, 1], place=tmp_path / "slots", share_cores=True)
    shared, held = sharing.lease(1), other.lease(1)
    assert shared is not None and held is not None and other.is_disturbed(held)
    sharing.release(shared)
    assert not other.is_disturbed(held)
    other.close()
