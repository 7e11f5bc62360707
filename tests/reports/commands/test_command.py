"""`python -m reports`, as a user types it."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from gradsweep import run_directory
from reports.__main__ import main
from reports.building.sweep_report import BuiltReport
from reports.page import assets
from reports.plots import picture, style
from reports.reading.cache import DIRECTORY as CACHE
from reports.reading.text import format_number, format_spread
from reports.tables import file_formats, formats
from tests.conftest import ROOT
from tests.reports import fabricate


@dataclasses.dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


class Command:
    """`python -m reports ARGUMENTS` in a working directory, without a process of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], cwd: Path) -> None:
        self.patch, self.capture = patch, capture
        self.patch.chdir(cwd)
        for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
            self.patch.delenv(name, raising=False)

    def __call__(self, *arguments: object) -> Done:
        self.capture.readouterr()
        status = main([*map(str, arguments)])
        return Done(status, *self.capture.readouterr())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(monkeypatch, capsys, tmp_path)


def process(*arguments: object, code: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The real thing."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    start = ["-c", code] if code else ["-m", "reports"]
    command = [sys.executable, *start, *map(str, arguments)]
    environment = {**kept, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True)


@pytest.fixture
def sweep(nine: Path, tmp_path: Path) -> Path:
    """A copy to write into, where a date's directory belongs."""
    return shutil.copytree(nine, tmp_path / "output/2026-11-20/14-03-22")


@pytest.fixture
def trouble(troubled: BuiltReport, tmp_path: Path) -> Path:
    return shutil.copytree(troubled.directory, tmp_path / "trouble")


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.thorough
def test_everything_is_written_and_no_run_is_touched(sweep: Path, command: Command) -> None:
    before = contents(sweep / run_directory.RUNS)
    done = command("output/2026-11-20/14-03-22")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "output/2026-11-20/14-03-22/report.html"
    assert contents(sweep / run_directory.RUNS) == before
    names = {"throughput", "throughput_samples", "accuracy", "accuracy_best", "speedup", "payload", "sent"}
    names |= {"compression_ratio", "phases", "runs"}
    assert names <= {path.stem for path in (sweep / "tables").iterdir()}
    for folder, suffixes in (("tables", ("csv", "md", "tex")), ("plots", ("png",))):
        made = {path.name for path in (sweep / folder).iterdir()}
        assert made == {f"{name.rpartition('.')[0]}.{suffix}" for name in made for suffix in suffixes}
    for title in ("Throughput", "Test accuracy after the last epoch"):
        assert title in done.out.splitlines()
    written = {name: data for name, (_, data) in contents(sweep).items() if CACHE not in name}
    assert command("--quiet", sweep).out == "output/2026-11-20/14-03-22/report.html\n"
    again = {name: data for name, (_, data) in contents(sweep).items() if CACHE not in name}
    assert again == written, "a second call writes the same"


def test_what_commands_say_without_loading_it_is_so() -> None:
    assert tuple(picture._FORMATS) == file_formats.PICTURES and tuple(formats.FORMATS) == file_formats.TABLES
    assert matplotlib.rc_params_from_file(style.STYLE)["figure.dpi"] == assets.DPI


def test_the_summaries_list_every_run(sweep: Path, command: Command) -> None:
    other = fabricate.sweep(sweep.parent / "15-00-00", [fabricate.config("svd", seed=s) for s in (0, 1)])
    (sweep.parent / "latest").symlink_to("14-03-22")
    assert command(sweep, "--quiet", "--no-plots").status == 0
    with (sweep / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9 and {row["sweep"] for row in rows} == {"2026-11-20/14-03-22"}
    assert all((sweep / row["directory"] / run_directory.CONFIG).is_file() for row in rows)
    with (sweep.parent / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sweep"] for row in rows] == ["2026-11-20/14-03-22"] * 9 + ["2026-11-20/15-00-00"] * 2
    assert all((sweep.parent / row["directory"] / run_directory.CONFIG).is_file() for row in rows)
    assert rows[-1]["compressor.rank"] == "3" and rows[-1]["started"].startswith("2026-11-20T14:03:25")
    assert not (other / "summary.csv").exists(), "only what was asked for"


@pytest.mark.thorough
def test_a_date_and_a_root_rebuild_all_their_sweeps(sweep: Path, command: Command) -> None:
    root = sweep.parent.parent
    others = [fabricate.sweep(root / name, [fabricate.config()]) for name in ("2026-11-20/b", "2026-11-21/c")]
    done = command(sweep.parent, "--quiet", "--no-plots")
    assert done.out.splitlines() == [f"output/2026-11-20/{name}/report.html" for name in ("14-03-22", "b")]
    assert not (others[1] / "report.html").exists()
    assert command(root, "--quiet", "--no-plots").status == 0
    assert (others[1] / "report.html").exists() and (others[1].parent / "summary.csv").exists()


def test_only_a_dates_directory_gets_a_summary(tmp_path: Path, command: Command) -> None:
    """Sweeps may lie where a user keeps other things."""
    for name in ("a", "b"):
        fabricate.sweep(tmp_path / "results" / name, [fabricate.config()])
    assert command("--quiet", "--no-plots", tmp_path / "results/a").status == 0
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["a", "b"]


def test_no_runs_is_a_usage_error_of_one_line(sweep: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "empty").mkdir()
    done = command("empty")
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(r"reports: empty: no runs here; expected .*\n", done.err)
    assert command(sweep, "empty").status == 2
    assert not (sweep / "report.html").exists(), "nothing is done where not all can be"
    assert process(tmp_path / "empty").returncode == 2


def test_what_cannot_be_written_is_said_in_one_line(sweep: Path, command: Command) -> None:
    (sweep / "tables").write_text("in the way")
    done = command(sweep)
    assert done.status == 1 and re.fullmatch(r"reports: .*tables.*\n", done.err)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven numbers of workers, two learning rates, and a long story."""
    grid = [
        fabricate.config(name, workers, optimizer__lr=lr, epochs=1)
        for name in ("none", "qsgd")
        for workers in (1, 2, 4, 8, 16, 32, 64)
        for lr in (0.1, 0.2)
    ]
    sweep = fabricate.sweep(tmp_path_factory.mktemp("wide") / "sweep", grid)
    reason = "rank 3 was killed by signal 9 (SIGKILL), and a story follows that is longer than any terminal is wide"
    fabricate.run(sweep, fabricate.config("svd", 2, optimizer__lr=0.1), run_directory.FAILED, reason)
    return sweep


@pytest.mark.parametrize("width", [80, 40, None])
def test_no_number_is_cut_at_any_width(width: int | None, wide: Path, command: Command) -> None:
    if width:
        command.patch.setenv("COLUMNS", str(width))
    done = command(wide, "--no-plots")
    assert done.status == 0 and "…" not in done.out and "\x1b" not in done.out
    for workers in (1, 2, 4, 8, 16, 32, 64):
        assert done.out.count(f" {workers} worker") >= 2
    with (wide / "tables/throughput.csv").open() as file:
        for row in csv.DictReader(file):
            assert (
                format_number(float(row["mean"])) in done.out
                if row["mean"]
                else int(row["failed"]) + int(row["missing"])
            )
    if width:
        assert max(map(len, done.out.splitlines()[:-1])) <= width
        assert "longer" in done.out
    else:
        assert "rank 3 was killed by signal 9 (SIGKILL), and a story follows that is longer than any term" in done.out


def test_of_very_many_keys_the_first_are_shown(tmp_path: Path, command: Command) -> None:
    """All would leave no letter of any."""
    keys = [f"key_{number}" for number in range(40)]
    sweep = fabricate.sweep(tmp_path / "keys", [], swept=keys)
    for place in range(3):
        fabricate.run(sweep, {**fabricate.config(), **{key: 10 * place + 2 for key in keys}})
    command.patch.setenv("COLUMNS", "80")
    done = command(sweep, "--no-plots")
    assert done.status == 0 and max(map(len, done.out.splitlines()[:-1])) <= 80
    rows = [line.split() for line in done.out.splitlines() if line.startswith("none ")]
    assert len(rows) == 6 and all(row[1:5] == row[1:2] * 4 and re.match(r"\d+\.?\d*$", row[-1]) for row in rows)
    assert "32 more" in done.out.split("Throughput\n")[0].replace("\n", " ")
    assert "no room for key_7, key_8" in done.out and "the table's files have them" in done.out.replace("\n", " ")
    assert command(sweep, "--rows", "compressor").status == 0
    text = (sweep / "tables" / "accuracy_by_compressor_workers.md").read_text()
    assert "differ also in key_0 (2, 12, 22); " in text and "32 more" in text and "key_8 (" not in text


@pytest.mark.parametrize("width", [80, 30])
def test_cells_of_several_seeds_are_not_cut(width: int, tmp_path: Path, command: Command) -> None:
    sweep = fabricate.sweep(tmp_path / "seeds", [fabricate.config("svd", w, seed=s) for w in (2, 4) for s in range(3)])
    for seed, status in ((3, run_directory.FAILED), (4, run_directory.DIVERGED), (5, run_directory.TIMEOUT)):
        fabricate.run(sweep, fabricate.config("svd", 2, seed=seed), status)
    command.patch.setenv("COLUMNS", str(width))
    done = command(sweep, "--no-plots")
    assert done.status == 0 and max(map(len, done.out.splitlines()[:-1])) <= width
    words = done.out.split()
    for text in ("(n=3,", "diverged,", "timeout)", "missing)"):
        assert text in words
    with (sweep / "tables/throughput.csv").open() as file:
        for row in csv.DictReader(file):
            assert {row["n"], row["failed"] + row["missing"]} in ({"3", "10"}, {"3", "03"})
            mean, _, std = format_spread(float(row["mean"]), float(row["std"])).partition(" ± ")
            assert mean in words and any(word.rstrip("†") == std for word in words)


def test_the_terminal_shows_what_failed_and_what_was_left_out(trouble: Path, command: Command) -> None:
    done = command(trouble, "--no-plots")
    assert "Runs that are not done" in done.out and "loss is nan at step 61" in done.out
    assert re.search(r"svd +failed +diverged +not measured", done.out)
    assert re.search(r"left out: runs/\S*workers=16\S*: no config.yaml", done.out)
    assert "†: more workers than cores" in done.out


def test_colours_are_for_terminals_that_want_them(trouble: Path) -> None:
    code = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-m', 'reports', '--no-plots', sys.argv[1]]) >> 8)"
    assert b"\x1b[33m" in process(trouble, code=code, TERM="xterm-256color").stdout
    assert b"\x1b[33m" not in process(trouble, code=code, TERM="xterm-256color", NO_COLOR="1").stdout


def test_a_closed_standard_output_is_no_obstacle(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sweep / "report.html").unlink(missing_ok=True)
    monkeypatch.setattr(sys, "stdout", None)
    assert main([str(sweep), "--no-plots"]) == 0
    assert (sweep / "report.html").exists()


def test_an_encoding_without_our_signs_is_no_obstacle(sweep: Path) -> None:
    done = process(sweep, "--no-plots", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"") and b"98." in done.stdout


@pytest.mark.parametrize("name", ["tables", "report.html"])
def test_what_is_in_the_way_of_a_report_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    (sweep / name).touch() if name == "tables" else (sweep / name).mkdir()
    assert main([str(sweep), "--no-plots", "--quiet"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"reports: {sweep / name}: ") and err.endswith("; valid is to remove it\n")
