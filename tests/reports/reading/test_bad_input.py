"""Whatever a sweep's directory holds, there is a report, and what it does not contain is listed with the reason."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import reports
from gradsweep import csv_columns, errors, files, run_directory, yaml_files
from gradsweep.signature import signature
from reports.__main__ import main
from reports.building.sweep_report import build_report
from reports.reading import csv_rows, find_runs, incremental, run_row
from reports.reading.report import Report
from tests.reports import fabricate


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return fabricate.sweep(tmp_path / "2026-11-20" / "sweep", [fabricate.config(seed=seed) for seed in range(3)])


def directories(sweep: Path) -> list[Path]:
    return sorted((sweep / run_directory.RUNS).iterdir())


def told(report: Report) -> list[tuple[str, str]]:
    return [(entry.path.name, entry.reason) for entry in report.left_out]


@pytest.mark.thorough
def test_numbers_that_are_none_are_read_as_what_they_are(sweep: Path) -> None:
    (first, second, third) = directories(sweep)
    text = (first / run_directory.RESULT).read_text()
    values = json.loads(text)
    for name, value in zip(("accuracy", "loss", "train_loss"), (math.nan, math.inf, -math.inf), strict=True):
        values[name] = value
    (first / run_directory.RESULT).write_text(json.dumps(values))
    lines = (second / run_directory.EPOCHS).read_text().splitlines()
    for line, word in zip((1, 2, 3, 4), ("nan", "inf", "-Infinity", "1e999"), strict=True):
        fields = lines[line].split(",")
        fields[csv_columns.EPOCH_COLUMNS.index("test_loss")] = word
        lines[line] = ",".join(fields)
    (second / run_directory.EPOCHS).write_text("\n".join(lines) + "\n")
    with (third / run_directory.CONFIG).open("a") as file:
        file.write("clip: .inf\nthreshold: .nan\n")
    report = build_report(sweep).report
    found = report.runs.set_index("run")
    assert found.loc[first.name, ["accuracy", "loss", "train_loss"]].isna().all() and not report.left_out
    epochs = report.epochs[report.epochs["run"] == second.name]["test_loss"].to_numpy()
    assert (
        np.isnan(epochs[0]) and list(epochs[1:4]) == [math.inf, -math.inf, math.inf] and np.isfinite(epochs[4:]).all()
    )
    assert found["clip"][third.name] == math.inf and pd.isna(found["threshold"][third.name])


def test_instants_of_several_time_zones_are_compared_as_such(sweep: Path) -> None:
    instants = ["2026-11-20T10:00:00+05:30", "2026-11-20T04:29:59Z", "2026-11-20T04:30:01"]
    for directory, instant in zip(directories(sweep), instants, strict=True):
        state = json.loads((directory / run_directory.STATE).read_text())
        state["attempts"][0]["started"] = instant
        (directory / run_directory.STATE).write_text(json.dumps(state))
    for seed, word in enumerate(("yesterday", "2026-13-45T99:00:00Z", "9999999-01-01", ["x"]), 10):
        directory = fabricate.run(sweep, fabricate.config(seed=seed))
        (directory / run_directory.STATE).write_text(json.dumps({"status": "done", "attempts": [{"started": word}]}))
    runs = build_report(sweep, pictures=()).report.runs.set_index("seed")["started"]
    told = [f"{at:%H:%M:%S}" for at in runs[[0, 1, 2]]]
    assert sorted(told) == ["04:29:59", "04:30:00", "04:30:01"], "in UTC, where none is said"
    assert runs[[10, 11, 12, 13]].isna().all()


def test_of_runs_with_one_signature_the_newest_that_is_done_counts(tmp_path: Path) -> None:
    config = fabricate.config("qsgd", 4)
    first = fabricate.sweep(tmp_path / "2026-11-20" / "first", [config, fabricate.config("none", 4)])
    second = fabricate.sweep(tmp_path / "2026-11-21" / "second", [config])
    third = fabricate.sweep(tmp_path / "2026-11-22" / "third", [])
    failed = fabricate.run(third, config, run_directory.FAILED, "rank 1 was killed")
    old = next((first / run_directory.RUNS).glob("*qsgd*"))
    new = directories(second)[0]
    again = shutil.copytree(old, old.with_name("copy-" + old.name))
    for directory, day in ((old, 20), (again, 19), (new, 21), (failed, 22)):
        state = json.loads((directory / run_directory.STATE).read_text())
        state["attempts"][0]["ended"] = f"2026-11-{day}T12:00:00+00:00"
        (directory / run_directory.STATE).write_text(json.dumps(state))
    report = Report([first, second, third])
    assert len(report.runs) == 5 and report.runs["signature"].nunique() == 2, "nothing is dropped unasked"
    merged = report.merge()
    assert list(merged.runs["sweep"]) == ["2026-11-20/first", "2026-11-21/second"]
    assert set(merged.runs["directory"]) == {str(new), str(next((first / run_directory.RUNS).glob("compressor=none*")))}
    reason = f"the same config as {new}, which counts"
    assert {(entry.path, entry.reason) for entry in merged.left_out} == {
        (path, reason) for path in (old, again, failed)
    }
    assert set(merged.epochs["run"]) == set(merged.profile["run"]) == set(merged.runs["run"])
    assert len(merged.epochs) == 30 and not report.left_out
    assert len(Report([third]).merge().runs) == 1, "where none is done, there is still the failure"


def test_runs_that_only_are_called_alike_are_not_one(tmp_path: Path) -> None:
    """Eight digits of a signature name a run in its sweep; those of other sweeps may have the same."""
    sweeps = []
    for seed in range(2):
        sweeps.append(fabricate.sweep(tmp_path / str(seed), []))
        fabricate.run(sweeps[-1], fabricate.config(seed=seed), name="run-12345678")
    merged = Report(sweeps).merge()
    assert len(merged.runs) == 2 and not merged.left_out


@pytest.mark.parametrize("name", ["again-{}", "{}.bak"])
def test_of_two_runs_with_one_signature_in_a_sweep_one_counts(name: str, sweep: Path) -> None:
    """Both would make each run a cell of its own, and nothing a mean."""
    (first, *_) = directories(sweep)
    state = json.loads((first / run_directory.STATE).read_text())
    full = signature(yaml_files.read_mapping(first / run_directory.CONFIG))
    files.write_json(first / run_directory.STATE, {**state, "signature": full})
    copy = shutil.copytree(first, first.with_name(name.format(first.name)))
    built = build_report(sweep, pictures=())
    assert len(Report([sweep]).runs) == 4, "nothing is dropped unasked"
    assert len(built.grid.runs) == 3 and not built.grid.keys and built.grid.runs["cell"].nunique() == 1
    ((path, reason),) = told(built.report)
    assert {path} < {first.name, copy.name} and reason.startswith("the same config as ")
    pages = (built.page.read_text(), (sweep / run_directory.SUMMARY).read_text())
    assert reason.split("/")[-1] in pages[0] and pages[1].count("\n") == 4
    assert main([str(sweep), "--rows", "compressor", "--format", "csv", "--quiet"]) == 0
    (found,) = pd.read_csv(sweep / "tables" / "accuracy_by_compressor_workers.csv").to_dict("records")
    assert found["n"] == 3


def test_200_swept_keys(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [], swept=[f"key_{number}" for number in range(200)])
    for run in range(4):
        keys = {f"key_{number}": (run + number) % 4 for number in range(200)}
        fabricate.run(sweep, {**fabricate.config(), **keys})
    built = build_report(sweep, pictures=())
    assert len(built.grid.runs) == 4 and not built.left_out and built.page.stat().st_size > 10_000


NAMES = [
    '"><script>alert(1)<|script>',
    "a b",
    "a,b=c",
    "=1+1",
    "ünïcode-é-日本",
    "$\\frac{a}_b^c%&#~",
    "-",
    "a|b`c`*d*",
    "'",
]


def test_names_of_any_kind(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for name in NAMES:
        fabricate.run(sweep, fabricate.config(name, seed=0), name=f"{name}-12345678".replace("/", "|"))
    built = build_report(sweep, pictures=())
    assert set(built.report.runs["compressor"]) == set(NAMES) and not built.left_out
    assert "<script>alert" not in built.page.read_text()


FORMULA = '=HYPERLINK("http://x","y")'


@pytest.mark.thorough
def test_what_looks_like_a_formula_is_a_text_in_every_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of sweeps, runs, keys and values, reasons and hosts: whatever others may have chosen."""
    monkeypatch.chdir(tmp_path)
    for name in ("2026-11-20/=before", "2026-11-20/@after"):
        sweep = fabricate.sweep(Path(name), [], swept=["=key", "note"])
        for seed in (0, 1):
            for number, note in enumerate((FORMULA, "-1+1", -0.5, "-1e-3", "\t@SUM(A1)")):
                config = fabricate.config("+qsgd", 2, seed=seed, epochs=3, note=note)
                run = fabricate.run(sweep, {**config, "=key": note}, name=f"-{number}+{seed}")
                (result := json.loads((run / run_directory.RESULT).read_text()))["hosts"] = ["+node", "@node"]
                files.write_json(run / run_directory.RESULT, result)
        fabricate.run(sweep, {**config, "=key": "=failed"}, run_directory.FAILED, FORMULA, name="=failed")
    assert main(["2026-11-20", "--quiet", "--no-plots", "--format", "csv"]) == 0
    assert main(["2026-11-20", "--quiet", "--no-plots", "--baseline", "2026-11-20/=before", "--into", "both"]) == 0
    assert main(["2026-11-20/=before", "--quiet", "--rows", "=key", "--cols", "note", "--format", "csv"]) == 0
    written = sorted(Path().rglob("*.csv"))
    written = [path for path in written if run_directory.RUNS not in path.parts]
    assert {path.parts[0] for path in written} == {"2026-11-20", "both"} and len(written) > 40
    quoted = set()
    for path in written:
        with path.open(newline="", encoding="utf-8") as file:
            for cell in (cell for row in csv.reader(file) for cell in row):
                assert cell.isprintable(), (path, cell)
                if cell[:1] in ("=", "+", "-", "@"):
                    assert math.isfinite(float(cell)), (path, cell)
                quoted |= {cell} if cell.startswith("'") else set()
    assert {"'=key", f"'{FORMULA}", "'-1+1", "'+qsgd", "'+node,@node", "'@SUM(A1)", "'=failed", "'-0+1"} <= quoted
    for name in ("summary.csv", "tables/runs.csv"):
        found = pd.read_csv(f"2026-11-20/=before/{name}", dtype=str)
        assert {"-0.5", "-1e-3"} < set(found["note"]) and len(found) == 11


def test_a_sweep_whose_name_is_not_utf8(tmp_path: Path) -> None:
    fabricate.sweep(tmp_path / "odd \udcff", [fabricate.config()])
    with pytest.raises(errors.UsageError, match="its name is not UTF-8$"):
        reports.load(tmp_path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    "name", [run_directory.CONFIG, run_directory.STATE, run_directory.RESULT, run_directory.EPOCHS, run_directory.STEPS]
)
def test_a_file_that_cannot_be_opened(name: str, sweep: Path) -> None:
    loop(directories(sweep)[1] / name)
    built = build_report(sweep, pictures=())
    _ = built.report.epochs, built.report.profile
    assert len(built.report.runs) == (2 if name == run_directory.CONFIG else 3)
    assert (name, "a symbolic link, which is not followed") in told(built.report)


def test_a_run_that_cannot_be_opened(sweep: Path) -> None:
    (first, *_) = directories(sweep)
    shutil.rmtree(first)
    first.symlink_to(first.name)
    report = build_report(sweep, pictures=()).report
    assert len(report.runs) == 2 and told(report) == [(run_directory.CONFIG, "Too many levels of symbolic links")]


def test_runs_that_may_not_be_listed(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: str | os.PathLike[str]) -> object:
        if os.fspath(path) == str(sweep / run_directory.RUNS):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(find_runs.os, "scandir", refuse)
    assert find_runs.find_sweeps(sweep.parent) == [sweep]
    assert told(build_report(sweep, pictures=()).report) == [(run_directory.RUNS, "Permission denied")]


def test_what_is_appended_while_it_is_read_is_read_up_to_a_whole_row(sweep: Path) -> None:
    (directory, *_) = directories(sweep)
    whole = (directory / run_directory.STEPS).read_bytes()
    header, *lines = whole.splitlines(keepends=True)
    (directory / run_directory.STEPS).write_bytes(header)
    (directory / run_directory.RESULT).unlink()
    files.write_json(directory / run_directory.STATE, {"status": run_directory.RUNNING, "attempts": [{"number": 1}]})
    stopped = threading.Event()

    def write() -> None:
        with (directory / run_directory.STEPS).open("ab", buffering=0) as file:
            for start in range(0, len(data := b"".join(lines)), 97):
                file.write(data[start : start + 97])
                if stopped.wait(0.0002):
                    break

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while writer.is_alive():
            report = reports.load(sweep)
            steps = report.steps[report.steps["run"] == directory.name]
            assert list(steps["step"]) == list(range(1, len(steps) + 1)) and steps["step_s"].notna().all()
            assert not report.left_out
    finally:
        stopped.set()
        writer.join()


@pytest.mark.parametrize("after", [run_directory.CONFIG, run_directory.STATE, "row"])
def test_a_run_that_is_removed_while_it_is_read(after: str, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = directories(sweep)
    read, row = run_row.DirectoryFiles.read, run_row.read_row

    def remove(files: run_row.DirectoryFiles) -> None:
        if files.directory == first:
            shutil.rmtree(first)

    def reading(files: run_row.DirectoryFiles, name: str) -> bytes | None:
        data = read(files, name)
        if name == after:
            remove(files)
        return data

    def whole(files: run_row.DirectoryFiles, configs: incremental.Configs) -> object:
        found = row(files, configs)
        if after == "row":
            remove(files)
        return found

    monkeypatch.setattr(run_row.DirectoryFiles, "read", reading)
    monkeypatch.setattr(run_row, "read_row", whole)
    report = build_report(sweep, pictures=()).report
    _ = report.profile
    if after == run_directory.CONFIG:
        assert len(report.runs) == 2 and told(report) == [(first.name, "was removed while it was read")]
    else:
        assert len(report.runs) == 3 and len(report.epochs) == 30
        lost = [(run_directory.RESULT, "missing, though the run is done")]
        if after == "row":
            lost = [
                (f"{one}s.csv", f"no rows, though {one} {count} was reached")
                for one, count in (("epoch", 15), ("step", 180))
            ]
        assert sorted(told(report)) == lost


def test_a_sweep_that_is_removed_while_it_is_read(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports.load(sweep)
    shutil.rmtree(sweep)
    assert found.epochs.empty and found.profile.empty
    assert list(found.epochs) == ["sweep", "run", *csv_rows.EPOCHS.columns]
    assert told(Report([sweep])) == [(run_directory.RUNS, "No such file or directory")]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "quotes": lambda data: data.replace(b"\n7,", b'\n"7,', 1),
    "short line": lambda data: data.replace(b"\n7,", b"\n7,1\n7,", 1),
    "words": lambda data: data.replace(b"0.", b"1_0.", 1),
    "column twice": lambda data: data.replace(b"lr", b"epoch", 1),
    "spaces": lambda data: data.replace(b",", b", "),
    "nul": lambda data: data.replace(b"0.", b"\x00.", 3),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_read_line_by_line_is_what_is_there(damage: str, sweep: Path) -> None:
    path = directories(sweep)[0] / run_directory.EPOCHS
    every_run_has = len(csv_columns.EPOCH_COLUMNS)
    before, _ = csv_rows.read(path, csv_rows.EPOCHS)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    after, problem = csv_rows.read(path, csv_rows.EPOCHS)
    assert np.isnan(after[every_run_has:]).all()
    before, after = before[:every_run_has], after[:every_run_has]
    lost = {"quotes": 1, "short line": 1}.get(damage, 0)
    assert problem == (f"damaged lines left out: 1 of {15 + (damage == 'short line')}" if lost else None)
    if damage == "crlf":
        assert np.array_equal(before, after)
    elif damage == "spaces":
        assert after.shape == (10, 15), "names with a space are other names"
    else:
        assert set(after[0]) == set(range(1, 16)) - ({7} if damage == "quotes" else set())
        assert np.count_nonzero(np.isnan(after)) <= 15
