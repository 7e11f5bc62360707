"""`python -m reports`, as a user types it."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.__main__ import main
from sweep import run as rundir
from tests.conftest import ROOT
from tests.reports import fabricate


def run(*arguments: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "reports", *map(str, arguments)],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture
def sweep(nine: Path, tmp_path: Path) -> Path:
    """A copy to write into, where a date's directory belongs."""
    return shutil.copytree(
        nine,
        tmp_path / "output/2026-11-20/14-03-22",
        ignore=shutil.ignore_patterns("tables", "plots", "*.html", "*.csv~"),
    )


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_everything_is_written_and_no_run_is_touched(sweep: Path, tmp_path: Path) -> None:
    before = contents(sweep / rundir.RUNS)
    done = run("output/2026-11-20/14-03-22", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "output/2026-11-20/14-03-22/report.html"
    assert contents(sweep / rundir.RUNS) == before
    names = {"throughput", "throughput_samples", "accuracy", "accuracy_best", "speedup", "payload", "sent"}
    names |= {"compression_ratio", "phases", "runs"}
    assert {path.name for path in (sweep / "tables").iterdir()} == {f"{n}.{e}" for n in names for e in ("csv", "md")}
    assert len(list((sweep / "plots").glob("*.png"))) == len(list((sweep / "plots").iterdir())) == 5
    for title in ("Throughput", "Test accuracy after the last epoch"):
        assert title in done.stdout.splitlines()


def test_a_second_call_writes_the_same(sweep: Path) -> None:
    first, second = (
        {name: data for name, (_, data) in contents(sweep).items()}
        for _ in range(2)
        if not main(["--quiet", str(sweep)])
    )
    assert first == second


def test_the_summaries_list_every_run(sweep: Path) -> None:
    other = fabricate.sweep(sweep.parent / "15-00-00", [fabricate.config("svd", seed=s) for s in (0, 1)])
    assert run(sweep, "--quiet", "--no-plots").returncode == 0
    with (sweep / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9 and {row["sweep"] for row in rows} == {"14-03-22"}
    assert all((sweep / row["directory"] / rundir.CONFIG).is_file() for row in rows)
    with (sweep.parent / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sweep"] for row in rows] == ["14-03-22"] * 9 + ["15-00-00"] * 2
    assert all((sweep.parent / row["directory"] / rundir.CONFIG).is_file() for row in rows)
    assert rows[-1]["compressor.rank"] == "3" and rows[-1]["started"].startswith("2026-11-20T14:03:25")
    assert not (other / "summary.csv").exists(), "only what was asked for"


def test_a_date_and_a_root_rebuild_all_their_sweeps(sweep: Path) -> None:
    others = [
        fabricate.sweep(sweep.parent.parent / name, [fabricate.config()]) for name in ("2026-11-20/b", "2026-11-21/c")
    ]
    done = run(sweep.parent, "--quiet", "--no-plots")
    assert done.stdout.splitlines() == [str(path / "report.html") for path in (sweep, others[0])]
    assert not (others[1] / "report.html").exists()
    assert run(sweep.parent.parent, "--quiet", "--no-plots").returncode == 0
    assert (others[1] / "report.html").exists() and (others[1].parent / "summary.csv").exists()


def test_files_that_are_not_ours_are_kept(tmp_path: Path) -> None:
    alone = fabricate.sweep(tmp_path / "results/a", [fabricate.config()])
    assert main(["--quiet", "--no-plots", str(alone)]) == 0
    assert not (tmp_path / "results/summary.csv").exists(), "one sweep in no date's directory"
    fabricate.sweep(tmp_path / "results/b", [fabricate.config()])
    (tmp_path / "results/summary.csv").write_text("my,own\n")
    assert main(["--quiet", "--no-plots", str(alone)]) == 0
    assert (tmp_path / "results/summary.csv").read_text() == "my,own\n"
    (tmp_path / "results/summary.csv").unlink()
    for _ in range(2):
        assert main(["--quiet", "--no-plots", str(alone)]) == 0
        assert len((tmp_path / "results/summary.csv").read_text().splitlines()) == 3


def test_no_runs_is_a_usage_error_of_one_line(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("empty", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"reports: empty: no runs here; expected .*\n", done.stderr)
    assert run(sweep, tmp_path / "empty").returncode == 2
    assert not (sweep / "report.html").exists(), "nothing is done where not all can be"


def test_what_cannot_be_written_is_said_in_one_line(sweep: Path) -> None:
    (sweep / "tables").write_text("in the way")
    done = run(sweep)
    assert done.returncode == 1 and re.fullmatch(r"reports: .*tables.*\n", done.stderr)


def many(directory: Path) -> Path:
    grid = [
        fabricate.config(name, workers, optimizer__lr=lr, epochs=1)
        for name in ("none", "qsgd")
        for workers in (1, 2, 4, 8, 16, 32, 64)
        for lr in (0.1, 0.2)
    ]
    sweep = fabricate.sweep(directory, grid)
    reason = "rank 3 was killed by signal 9 (SIGKILL), and a story follows that is longer than any terminal is wide"
    fabricate.run(sweep, fabricate.config("svd", 2, optimizer__lr=0.1), rundir.FAILED, reason)
    return sweep


@pytest.mark.parametrize("width", ["80", "40", None])
def test_no_number_is_cut_at_any_width(width: str | None, tmp_path: Path) -> None:
    sweep = many(tmp_path / "sweep")
    done = run(sweep, "--no-plots", **({"COLUMNS": width} if width else {}))
    assert done.returncode == 0 and "…" not in done.stdout and "\x1b" not in done.stdout
    text = " ".join(done.stdout.split())
    for workers in (1, 2, 4, 8, 16, 32, 64):
        assert done.stdout.count(f"{workers} worker") >= 2
    with (sweep / "tables/throughput.csv").open() as file:
        for row in csv.DictReader(file):
            for cell in list(row.values())[2:-1]:
                assert cell in ("failed", "missing") or f"{float(cell):.3g}" in done.stdout
    if width:
        assert max(map(len, done.stdout.splitlines()[:-1])) <= int(width)
        assert "killed by signal" in text
    else:
        assert "rank 3 was killed by signal 9 (SIGKILL), and a story follows that is longer than any terminal" in text


def test_the_terminal_shows_what_failed_and_what_was_left_out(troubled_directory: Path) -> None:
    done = run(troubled_directory, "--no-plots")
    assert "Runs that are not done" in done.stdout and "loss is nan at step 61" in done.stdout
    assert re.search(r"svd +failed +diverged +not measured", done.stdout)
    assert re.search(r"left out: runs/\S*workers=16\S*: no config.yaml", done.stdout)
    assert "†: more workers than cores" in done.stdout


@pytest.fixture
def troubled_directory(troubled: object, tmp_path: Path) -> Path:
    from reports.build import Built

    assert isinstance(troubled, Built)
    return shutil.copytree(troubled.directory, tmp_path / "troubled")


def test_colours_are_for_terminals_that_want_them(troubled_directory: Path) -> None:
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'reports', '--no-plots', sys.argv[1]]) >> 8)"

    def on_terminal(**environment: str) -> str:
        clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
        done = subprocess.run(
            [sys.executable, "-c", code, str(troubled_directory)],
            cwd=ROOT,
            env={**clean, "TERM": "xterm-256color", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        return done.stdout.decode()

    assert "\x1b[33m" in on_terminal() and "\x1b[33m" not in on_terminal(NO_COLOR="1")


def test_an_encoding_without_our_signs_is_no_obstacle(sweep: Path) -> None:
    done = run(sweep, "--no-plots", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0 and "98." in done.stdout
