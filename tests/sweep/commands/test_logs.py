"""`python -m sweep logs`: the end of logs, new lines and attempts as they come, and nothing that steers a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from gradsweep.text import harmless
from sweep.__main__ import main
from sweep.directory.sweep_directory import Sweep
from sweep.status.logs import find_last_lines
from tests.conftest import ROOT
from tests.sweep.fakes import write_run


def write(run: Run, attempt: int, out: str | bytes = "", err: str = "") -> None:
    """Append to the logs of an attempt."""
    run.attempt(attempt).mkdir(exist_ok=True)
    for name, text in ((run_directory.STDOUT, out), (run_directory.STDERR, err)):
        with (run.attempt(attempt) / name).open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = write_run(tmp_path, "a=1-11111111", {"status": "running", "attempts": []})
    write(run, 1, "first\n", "err 1\n")
    write(run, 2, "".join(f"line {i}\n" for i in range(100)), "err 2\n")
    return run


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["logs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_end_of_the_latest_attempt(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, tmp_path, "a=1").splitlines()
    assert lines[0] == "==> attempt-2/stdout.log <==" and lines[1:21] == [f"line {i}" for i in range(80, 100)]
    assert lines[21:] == ["", "==> attempt-2/stderr.log <==", "err 2"]
    assert shown(capsys, run.directory, "--stderr", "--attempt", "1") == "err 1\n"
    assert shown(capsys, tmp_path, "a=1", "--lines", "1").splitlines()[1:3] == ["line 99", ""]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["a=1", "--attempt", "3"], "--attempt 3: a=1-11111111 has no such attempt; valid is one of 1, 2"),
        (["a=2"], "a=2-22222222: no attempt has begun (pending); valid is a run that has, or -f to wait"),
        ([], "RUN: 2 runs; valid is one of them"),
        (["a=1", "--lines", "-1"], "--lines -1: valid is an integer from 0 up"),
    ],
)
def test_errors(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    write_run(tmp_path, "a=2-22222222", {"status": "pending", "attempts": []})
    assert main(["logs", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr() == ("", line + "\n")


def test_a_run_that_was_taken_over_has_its_logs_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = {"status": "done", "attempts": [{"number": 1}], "reused_from": "earlier/runs/a=3-33333333"}
    write_run(tmp_path, "a=3-33333333", taken).attempt(1).mkdir()  # with provenance.json, and no logs
    assert main(["logs", str(tmp_path), "a=3"]) == 2
    line = (
        "a=3-33333333: its logs are where it was computed; valid is earlier/runs/a=3-33333333, which it was taken from"
    )
    assert capsys.readouterr() == ("", line + "\n")


def test_following_goes_on_with_later_attempts(run: Run, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, fresh=False)  # it runs
    command = [sys.executable, "-m", "sweep", "logs", "-f", str(tmp_path), "a=1", "--lines", "1"]
    following = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None
        lines = [following.stdout.readline() for _ in range(5)]
        assert lines[1] == "line 99\n" and lines[4] == "err 2\n"
        write(run, 2, "more, ")
        assert [following.stdout.readline() for _ in range(2)] == ["\n", "==> attempt-2/stdout.log <==\n"]
        write(run, 2, "and the rest\n")
        assert following.stdout.readline() == "more, and the rest\n"
        write(run, 3, "again\n" * 30)
        files.write_json(run.path(run_directory.STATE), {"status": "done", "attempts": []})
        out, err = following.communicate(timeout=120)
        assert out == "\n==> attempt-3/stdout.log <==\n" + "again\n" * 30 and err == ""  # all of it
        assert following.returncode == 0
    finally:
        following.kill()
        sweep.close()


def test_following_ends_when_nobody_runs_the_sweep(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, tmp_path, "a=1", "-f", "--stderr") == "err 2\n"


def test_following_a_failed_run_ends_where_no_scheduler_answers(run: Run, tmp_path: Path) -> None:
    """What has failed is not believed to run, as what says so is."""
    files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": "7_1"})
    files.write_json(run.path(run_directory.STATE), {**run.state(), "status": run_directory.FAILED})
    command = [sys.executable, "-m", "sweep", "logs", "-f", str(tmp_path), "a=1", "--stderr"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, b"err 2\n")


def test_following_waits_for_the_first_attempt(tmp_path: Path) -> None:
    run = write_run(tmp_path, "a=1-11111111", {"status": "pending", "attempts": []})
    sweep = Sweep(tmp_path, fresh=False)
    command = [sys.executable, "-m", "sweep", "logs", "-f", str(tmp_path), "a=1", "--stderr"]
    following = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        write(run, 1, err="begun\n")
        assert following.stdout is not None and following.stdout.readline() == "begun\n"
    finally:
        following.kill()
        following.wait()
        sweep.close()


EVIL = b"\x1b]0;title\x07\x1b[2Jred\xff\xe2\x80\xae10%\r20%\r\nend\n"


def test_a_terminal_gets_no_control_characters_and_a_file_gets_what_was_written(run: Run, tmp_path: Path) -> None:
    write(run, 2, EVIL)
    command = [sys.executable, "-m", "sweep", "logs", str(tmp_path), "a=1", "--lines", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert EVIL in done.stdout
    ours, theirs = pty.openpty()
    done = subprocess.run(command, cwd=ROOT, stdout=theirs)
    os.close(theirs)
    seen = os.read(ours, 65536)
    os.close(ours)
    text = seen.decode().replace("\r\n", "\n")
    assert "\\x1b]0;title\\x07\\x1b[2Jred\ufffd\\u202e10%\n20%\nend\n" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


@given(st.text())
def test_harmless_text_has_no_control_characters(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", harmless(text))


@given(st.lists(st.sampled_from([b"", b"a", b"bc\r"]), max_size=8), st.booleans(), st.integers(0, 10))
def test_the_last_lines_of_anything(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], whole: bool, count: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + (b"" if whole else b"torn"))
    expected = [line + b"\n" for line in lines] + ([] if whole else [b"torn"])
    assert path.read_bytes()[find_last_lines(path, count) :] == b"".join(expected[max(0, len(expected) - count) :])


def test_the_end_of_a_large_log_is_found_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 33)  # zeros, of which none is stored
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast but one\nlast\n")
    end = path.stat().st_size
    assert find_last_lines(path, 2) == end - len("last but one\nlast\n")
    assert end - find_last_lines(path, 9) <= 1 << 22


def test_a_log_that_is_cut_meanwhile(run: Run, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, fresh=False)
    command = [sys.executable, "-m", "sweep", "logs", "-f", str(tmp_path), "a=1", "--stderr"]
    following = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None and following.stdout.readline() == "err 2\n"
        os.truncate(run.attempt(2) / run_directory.STDERR, 0)
        write(run, 3, err="next\n")
        assert [following.stdout.readline() for _ in range(3)][-1] == "next\n"
    finally:
        following.kill()
        following.wait()
        sweep.close()
