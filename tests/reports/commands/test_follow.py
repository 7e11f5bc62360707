"""`python -m reports --follow` and `watch`: they show what changes, and end with the sweep."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsweep import run_directory
from reports.__main__ import main
from reports.commands import follow
from reports.commands.follow import SweepFollower, stamp_sweep
from sweep.directory.sweep_directory import Sweep
from tests.conftest import ROOT
from tests.reports import fabricate


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return fabricate.sweep(tmp_path / "sweep", [fabricate.config("none", 2)])


@pytest.fixture
def held(sweep: Path) -> Iterator[Sweep]:
    """As its launcher has it."""
    opened = Sweep(sweep, fresh=False)
    try:
        yield opened
    finally:
        opened.close()


def once_per_nap(monkeypatch: pytest.MonkeyPatch, *events: object) -> None:
    """Have something happen in each of the pauses that the followers make, in which nobody has to wait."""
    left = list(events)
    monkeypatch.setattr("time.sleep", lambda seconds: left.pop(0)())


@pytest.mark.parametrize("name", follow.FILES)
def test_a_sweep_has_changed_when_a_file_of_a_run_has(name: str, sweep: Path) -> None:
    before = stamp_sweep(sweep)
    assert stamp_sweep(sweep) == before
    (run,) = run_directory.runs_of(sweep)
    with run.path(name).open("a") as file:
        file.write("\n")
    assert stamp_sweep(sweep) != before


@pytest.mark.parametrize("name", follow.RACE_FILES)
def test_a_sweep_has_changed_when_a_file_of_a_race_has(name: str, sweep: Path) -> None:
    race = sweep / run_directory.RACES / "workers=2-0123abcd"
    race.mkdir(parents=True)
    before = stamp_sweep(sweep)
    (race / name).write_text("{}")
    assert stamp_sweep(sweep) != before


def test_a_sweep_has_changed_when_a_run_is_new(sweep: Path) -> None:
    before = stamp_sweep(sweep)
    (sweep / "report.html").write_text("ours")
    assert stamp_sweep(sweep) == before
    fabricate.run(sweep, fabricate.config("qsgd", 2), run_directory.PENDING)
    assert stamp_sweep(sweep) != before


def test_what_is_written_until_the_end_is_seen(sweep: Path, held: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(name: str) -> None:
        fabricate.run(sweep, fabricate.config(name, 2))

    def last() -> None:
        more("svd")
        held.close()

    once_per_nap(monkeypatch, lambda: more("qsgd"), lambda: None, last)
    followed = SweepFollower(lambda: [sweep])
    seen = [len(run_directory.runs_of(sweep)) for changed in followed.watch(1.0) if changed == [sweep]]
    assert seen == [1, 2, 3] and not followed.is_active


def test_a_report_is_made_again_until_the_sweep_ends(
    sweep: Path, held: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[int] = []

    def count() -> None:
        rows.append(len((sweep / "summary.csv").read_text().splitlines()) - 1)

    def more() -> None:
        count()
        fabricate.run(sweep, fabricate.config("qsgd", 2))

    def end() -> None:
        count()
        fabricate.run(sweep, fabricate.config("svd", 2))
        held.close()

    once_per_nap(monkeypatch, more, count, end)
    assert main([str(sweep), "--follow", "--no-plots"]) == 0
    count()
    assert rows == [1, 2, 2, 3]
    out = capsys.readouterr().out
    assert out.count("report.html") == 3 and out.count("\nThroughput\n") == 1, "tables when all is over"


def test_follow_ends_at_once_where_nobody_runs_the_sweep(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(sweep), "--follow", "--no-plots", "--quiet"]) == 0
    assert capsys.readouterr().out.count("report.html") == 1
    assert main([str(sweep), "--follow", "--interval", "0"]) == 2
    assert "--interval 0: valid is a number of seconds from 0.1 to 3600" in capsys.readouterr().err


def test_watch_prints_lines_where_there_is_no_terminal(
    sweep: Path, held: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def more() -> None:
        fabricate.run(sweep, fabricate.config("qsgd", 2))

    once_per_nap(monkeypatch, more, held.close)
    before = {path: path.stat().st_mtime_ns for path in sweep.rglob("*")}
    assert main(["watch", str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and re.search(r"^\[2/2\]  done  compressor=qsgd,workers=2-", out, re.MULTILINE)
    assert out.index("[2/2]") < out.index("Throughput") < out.index("Test accuracy")
    assert re.search(r"^qsgd +\d", out, re.MULTILINE)
    assert {path: path.stat().st_mtime_ns for path in before if path.name != "runs"}.items() <= before.items()
    assert not (sweep / "report.html").exists()


def test_watch_says_by_its_status_whether_all_is_done(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate.run(sweep, fabricate.config("qsgd", 2), run_directory.FAILED, "boom")
    assert main(["watch", str(sweep)]) == 1
    assert "boom" in capsys.readouterr().out
    assert main(["watch", str(sweep / "nowhere")]) == 2


def test_watch_shows_tables_and_runs_on_a_terminal(sweep: Path, held: Sweep) -> None:
    fabricate.run(sweep, fabricate.config("qsgd", 4), run_directory.RUNNING)
    above, below = pty.openpty()
    os.set_blocking(above, False)
    command = [sys.executable, "-m", "reports", "watch", str(sweep), "--interval", "0.1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=below, stdout=below, stderr=below)
    os.close(below)
    try:
        picture = shown = ""
        while not picture:
            shown += read(above)
            found = re.search(r"Throughput.*?run by pid", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown), re.DOTALL)
            picture = found[0] if found else ""
        assert re.search(r"none +\d+", picture) and "2 runs" in picture
        held.close()
        while process.poll() is None:
            shown += read(above)
        assert process.returncode == 1
    finally:
        process.kill()
        process.wait()
        os.close(above)


def read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 65536).decode("utf-8", "replace")
    except OSError:
        return ""
