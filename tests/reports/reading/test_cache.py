"""What was read once is not read again, and never believed longer than it is true."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

import reports
from gradsweep import run_directory
from reports.reading import cache, csv_rows, incremental, run_row
from tests.conftest import ROOT
from tests.reports import fabricate


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three finished runs of an hour ago."""
    grid = [fabricate.config(seed=seed) for seed in range(3)]
    return aged(fabricate.sweep(tmp_path / "2026-11-20" / "sweep", grid))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the files of runs that were read, in a list that a test may clear."""
    seen: list[str] = []

    def row(files: object, configs: object, row: Callable = run_row.read_row) -> object:
        seen.append(run_directory.CONFIG)
        return row(files, configs)

    def batch(paths: list[Path], table: csv_rows.CsvColumns, batch: Callable = csv_rows._read_batch) -> object:
        seen.extend(path.name for path in paths)
        return batch(paths, table)

    monkeypatch.setattr(incremental.run_row, "read_row", row)
    monkeypatch.setattr(csv_rows, "_read_batch", batch)
    yield seen


def aged(sweep: Path, seconds: float = 3600) -> Path:
    """All its files were written so long ago."""
    for path in sweep.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)
    return sweep


def frames(sweep: Path) -> list[pd.DataFrame]:
    report = reports.load(sweep)
    assert not report.left_out
    return [report.runs, report.epochs, report.profile]


def same(some: list[pd.DataFrame], others: list[pd.DataFrame]) -> bool:
    return all(
        one.equals(other) and list(one.dtypes) == list(other.dtypes) for one, other in zip(some, others, strict=True)
    )


def parts(sweep: Path) -> list[Path]:
    return sorted((sweep / cache.DIRECTORY).glob("*"))


def test_nothing_is_read_twice(sweep: Path, read: list[str]) -> None:
    first = frames(sweep)
    assert sorted(read) == [run_directory.CONFIG] * 3 + [run_directory.EPOCHS] * 3 + [run_directory.STEPS] * 3
    read.clear()
    assert same(frames(sweep), first) and not read
    shutil.rmtree(sweep / cache.DIRECTORY)
    assert same(frames(sweep), first) and len(read) == 9


def test_only_what_is_new_is_read(sweep: Path, read: list[str]) -> None:
    frames(sweep)
    fabricate.run(sweep, fabricate.config(seed=9), name="a-new")
    read.clear()
    added = frames(sweep)
    assert sorted(read) == [run_directory.CONFIG, run_directory.EPOCHS, run_directory.STEPS]
    shutil.rmtree(sweep / cache.DIRECTORY)
    assert same(frames(sweep), added), "in the same order as without what was kept"


@pytest.mark.parametrize(
    "name", [run_directory.CONFIG, run_directory.STATE, run_directory.RESULT, run_directory.EPOCHS, run_directory.STEPS]
)
def test_a_file_that_has_changed_is_read_anew(name: str, sweep: Path) -> None:
    before = frames(sweep)
    directory = Path(before[0]["directory"][1])
    changes = {
        run_directory.CONFIG: lambda text: text.replace("lr: 0.1", "lr: 0.7"),
        run_directory.STATE: lambda text: text.replace("node7", "node8").replace(
            '"reason": null', '"reason": "was odd"'
        ),
        run_directory.RESULT: lambda text: text.replace('"accuracy": 0.', '"accuracy": 0.5'),
        run_directory.EPOCHS: lambda text: text.rpartition("15,")[0],
        run_directory.STEPS: lambda text: text.rpartition("180,")[0],
    }
    path = directory / name
    changed = changes[name](path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    os.utime(path, (time.time() - 1800,) * 2)
    after = frames(sweep)
    assert not same(before, after)
    shutil.rmtree(sweep / cache.DIRECTORY)
    assert same(frames(sweep), after)


def test_a_result_that_comes_later_is_seen(sweep: Path) -> None:
    directory = fabricate.run(sweep, fabricate.config("svd"), run_directory.FAILED)
    aged(sweep)
    reports.load(sweep)
    shutil.copy(next((sweep / run_directory.RUNS).glob("*none*")) / run_directory.RESULT, directory)
    found = reports.load(sweep).runs.set_index("run")["parameters"]
    assert found[directory.name] == fabricate.GRADIENT_BYTES // 4


def test_what_has_changed_just_now_is_not_kept(sweep: Path, read: list[str]) -> None:
    """A file system that counts in seconds shows the same time after the next write."""
    aged(sweep, seconds=0)
    for _ in range(2):
        read.clear()
        frames(sweep)
        assert len(read) == 9 and not parts(sweep)


def test_a_run_that_is_running_is_read_anew(sweep: Path, read: list[str]) -> None:
    fabricate.run(sweep, fabricate.config("qsgd"), run_directory.RUNNING)
    aged(sweep)
    for _ in range(2):
        _ = reports.load(sweep).profile
        again = list(read)
        read.clear()
    assert again == [
        run_directory.CONFIG,
        run_directory.EPOCHS,
        run_directory.STEPS,
        run_directory.STEPS,
    ]  # two for its row


def test_what_was_left_out_is_told_each_time(sweep: Path) -> None:
    (directory, *_) = sorted((sweep / run_directory.RUNS).iterdir())
    with (directory / run_directory.EPOCHS).open("a") as file:
        file.write("1,2,3\n")
    (directory / run_directory.RESULT).write_text("{")
    aged(sweep)
    for _ in range(2):
        report = reports.load(sweep)
        _ = report.epochs
        assert [(entry.path.name, entry.reason) for entry in report.left_out] == [
            (run_directory.RESULT, "not a JSON object"),
            (run_directory.EPOCHS, "damaged lines left out: 1 of 16"),
        ]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "text": lambda data: b"nothing of the kind\n",
    "flipped": lambda data: data[:100] + bytes(byte ^ 255 for byte in data[100:160]) + data[160:],
    "tail": lambda data: data[:-40] + b"\x00" * 40,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_passed_over_and_made_anew(damage: str, sweep: Path) -> None:
    first = frames(sweep)
    assert len(parts(sweep)) == 3
    for path in parts(sweep):
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert same(frames(sweep), first)
    assert len(parts(sweep)) == 6 and same(frames(sweep), first)


def test_what_another_version_has_left_is_not_used_but_removed(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_hash_sources", lambda: "0" * 16)
    frames(sweep)
    old = parts(sweep)
    (sweep / cache.DIRECTORY / "notes").write_text("of the user\n")
    monkeypatch.undo()
    assert len(old) == 3 and frames(sweep) and not set(old) & set(parts(sweep))
    assert len(parts(sweep)) == 4


def test_the_version_follows_from_what_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied = shutil.copytree(ROOT / "reports", tmp_path / "reports", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from reports.reading import cache; print(cache._hash_sources())"

    def version() -> str:
        command = [sys.executable, "-c", code]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        return subprocess.run(command, cwd=tmp_path, env=variables, check=True, capture_output=True, text=True).stdout

    before = version()
    assert before == f"{cache._hash_sources()}\n"
    with (Path(copied) / "reading/csv_rows.py").open("a") as file:
        file.write("# changed\n")
    assert version() != before


def test_many_parts_become_one(sweep: Path, read: list[str]) -> None:
    for seed in range(10, 10 + cache._MANY):
        frames(sweep)
        aged(fabricate.run(sweep, fabricate.config(seed=seed, epochs=2)))
    assert len(parts(sweep)) == 3 * cache._MANY
    found = frames(sweep)
    assert len(parts(sweep)) == 3
    read.clear()
    assert same(frames(sweep), found) and not read


@pytest.mark.parametrize("kind", ["file", "read-only", "full"])
def test_it_works_where_nothing_can_be_written(kind: str, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frames(sweep)
    shutil.rmtree(sweep / cache.DIRECTORY)
    if kind == "file":
        (sweep / cache.DIRECTORY).write_text("")
    elif kind == "read-only":
        monkeypatch.setattr(Path, "mkdir", raising(PermissionError(13, "Permission denied")))
    else:
        monkeypatch.setattr(cache.pq, "write_table", raising(OSError(28, "No space left on device")))
    assert same(frames(sweep), whole)
    monkeypatch.undo()
    assert kind == "file" or not parts(sweep)


def raising(error: Exception) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@pytest.mark.thorough
def test_processes_that_write_at_once_do_not_meet(sweep: Path) -> None:
    expected = frames(sweep)[2]["loss"].sum()
    shutil.rmtree(sweep / cache.DIRECTORY)
    code = f"import reports\nfor _ in range(4): print(reports.load({str(sweep)!r}).profile['loss'].sum())"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in started:
        out, err = process.communicate()
        assert not err and {float(line) for line in out.split()} == {expected}


def test_nothing_is_written_into_runs(sweep: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (sweep / run_directory.RUNS).rglob("*")}
    frames(sweep)
    assert {path: path.stat().st_mtime_ns for path in (sweep / run_directory.RUNS).rglob("*")} == before
    assert {path.parent.name for path in parts(sweep)} == {cache.DIRECTORY}


def test_a_sweep_that_was_moved_keeps_what_was_read(sweep: Path, read: list[str]) -> None:
    frames(sweep)
    moved = sweep.rename(sweep.parent / "moved")
    read.clear()
    found = reports.load(moved).runs
    assert not read and list(found["sweep"].unique()) == ["2026-11-20/moved"]
    assert all(Path(directory).is_dir() for directory in found["directory"])
