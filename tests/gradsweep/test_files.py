"""What may stand where a file should be is refused without being opened; YAML has no aliases."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import files, run_directory, yaml_files
from gradsweep.disk import regular_files


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, regular_files.MOST_BYTES + 1)


STANDING: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "a FIFO"),
    "directory": (Path.mkdir, "a directory"),
    "socket": (make_socket, "a socket"),
    "link": (lambda path: path.symlink_to("/etc/hostname"), "a symbolic link, which is not followed"),
    "loop": (lambda path: path.symlink_to(path.name), "a symbolic link, which is not followed"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link, which is not followed"),
    "sparse": (make_sparse, "larger than 64 MiB, the most that is read"),
}


@pytest.mark.parametrize("what", STANDING)
def test_what_is_no_file_is_not_read(what: str, tmp_path: Path) -> None:
    make, why = STANDING[what]
    path = tmp_path / "state.json"
    make(path)
    with pytest.raises(regular_files.NotRegular, match=why) as raised:
        regular_files.read_bytes(path)
    assert raised.value.filename == str(path)
    assert files.read_json(path) is None and not files.tail(tmp_path / "none")
    if what != "sparse":
        assert files.complete_text(path) == "" and files.tail(path) == []
        with pytest.raises(OSError, match=why if what != "directory" else "directory"):
            files.append_json(path, {})
    assert not regular_files.is_regular(path) or what == "sparse"


def test_a_device_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(regular_files.NotRegular, match="a device"):
        regular_files.read_bytes("/dev/zero")


def test_a_file_that_grows_while_it_is_read_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert regular_files.read_bytes(path, 100) == b"x" * 100 and regular_files.read_text(path) == "x" * 100
    with pytest.raises(regular_files.NotRegular, match="larger than 0 MiB"):
        regular_files.read_bytes(path, 99)
    assert regular_files.read_bytes("/proc/self/stat")  # says that it has no bytes, and has some


def test_runs_are_directories_and_no_links_to_any(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / run_directory.RUNS / folder).mkdir(parents=True)
    (tmp_path / run_directory.RUNS / "a" / run_directory.CONFIG).touch()
    (tmp_path / run_directory.RUNS / "b" / run_directory.CONFIG).symlink_to("/dev/null")
    (tmp_path / run_directory.RUNS / "linked").symlink_to("a")
    assert [run.name for run in run_directory.runs_of(tmp_path)] == ["a"]
    (tmp_path / run_directory.RUNS / "a" / "attempt-²").mkdir()
    (tmp_path / run_directory.RUNS / "a" / "attempt-2").mkdir()
    (tmp_path / run_directory.RUNS / "a" / "attempt-3").symlink_to("attempt-2")
    assert run_directory.runs_of(tmp_path)[0].attempt_numbers() == [2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x [1]\nb: *x\n", r"has an alias \(\*x\)"),
        ("a: &a\n  b: *a\n", r"has an alias \(\*a\)"),
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)), "has an alias"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("\n".join(f"{' ' * depth}a:" for depth in range(3000)), "nested too deeply"),
        ("[1]", "not a YAML mapping"),
        ("", "not a YAML mapping"),
        ("1: 2", "a key that is no text"),
        ("a: 2026-13-45", "month must be in 1..12"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: \0", "unacceptable character"),
    ],
)
def test_yaml_that_is_not_ours_is_refused_in_one_line(text: str, why: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(ValueError, match=why) as raised:
            yaml_files.parse_mapping(form)
        assert "\n" not in str(raised.value)


def test_yaml_as_we_write_it_is_read() -> None:
    assert yaml_files.parse_mapping("a: 'x && y'\nb: [1, {c: .inf}]\nd: {}\n") == {
        "a": "x && y",
        "b": [1, {"c": float("inf")}],
        "d": {},
    }
