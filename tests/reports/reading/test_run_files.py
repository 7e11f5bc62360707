"""Whatever lies in a run directory, it becomes a table or a reason why not."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

import reports
from gradsweep import csv_columns, errors, files, run_directory
from gradsweep.sweeps import planned_runs
from reports.building.sweep_report import build_report
from reports.reading import csv_rows
from reports.reading.columns import RUN_COLUMNS
from tests.conftest import ROOT
from tests.reports import fabricate


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def mean(table: list[dict[str, str]], column: str) -> float:
    return sum(float(row[column]) for row in table) / len(table)


def reasons(report: reports.reading.report.Report) -> dict[str, str]:
    return {entry.path.name: entry.reason for entry in report.left_out}


def test_runs_are_what_config_state_and_result_say(nine: Path) -> None:
    report = reports.load(nine)
    assert len(report.runs) == 9 and not report.left_out
    for run in report.runs.to_dict("records"):
        directory = Path(run["directory"])
        result = json.loads((directory / run_directory.RESULT).read_text())
        config = yaml.safe_load((directory / run_directory.CONFIG).read_text())
        for column in ("accuracy", "iterations_per_second", "sent_bytes", "time_s"):
            assert run[column] == result[column]
        assert run["encode_s"] == result["phases_s"]["encode"]
        assert run["step_s"] == pytest.approx(1 / result["iterations_per_second"])
        assert (run["steps_done"], run["epochs_done"]) == (180, 15)
        assert (run["compressor"], run["workers"]) == (config["compressor"]["name"], config["workers"])
        assert run["oversubscribed"] == (config["workers"] > fabricate.CORES)
        assert run["optimizer.lr"] == 0.1 and run["optimizer.nesterov"] and run["batch.per"] == "global"
        assert run["signature"] == directory.name[-8:] and run["hosts"] == "node7"


def test_columns_have_the_documented_types(nine: Path, tmp_path: Path) -> None:
    empty = fabricate.sweep(tmp_path / "sweep", [])
    fabricate.run(empty, fabricate.config(), run_directory.PENDING)
    for path in (nine, empty):
        runs = reports.load(path).runs
        assert {column: str(runs[column].dtype) for column in RUN_COLUMNS} == RUN_COLUMNS
        assert not [column for column in runs if str(column).split(".")[0] in ("sweep", "mpi", "data")][1:], "places"
    assert reports.load(nine).runs["compressor.levels"].dtype == "Int64", "whole numbers stay whole"
    assert reports.load(nine).runs["started"].dt.hour.unique() == [14]


def test_epochs_and_steps_are_the_rows_of_all_runs(nine: Path) -> None:
    report = reports.load(nine)
    assert list(report.epochs) == ["sweep", "run", *csv_rows.EPOCHS.columns] and len(report.epochs) == 9 * 15
    assert list(report.steps) == ["sweep", "run", *csv_columns.STEP_COLUMNS] and len(report.steps) == 9 * 180
    assert report.steps["step"].dtype == "Int64" and report.steps["loss"].dtype == "float64"
    assert report.steps["compression_error"].isna().any(), "not measured on each step"
    for directory in report.runs["directory"]:
        written = rows_of(Path(directory) / run_directory.EPOCHS)
        read = report.epochs[report.epochs["run"] == Path(directory).name]
        assert list(read["test_accuracy"]) == pytest.approx([float(row["test_accuracy"]) for row in written], rel=1e-14)


def test_a_run_without_result_is_measured_by_its_rows(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    directory = fabricate.run(sweep, fabricate.config("qsgd", 4), run_directory.FAILED, "rank 1 was killed")
    report = reports.load(sweep)
    (run,) = report.runs.to_dict("records")
    epochs, steps = rows_of(directory / run_directory.EPOCHS), rows_of(directory / run_directory.STEPS)
    assert (run["status"], run["reason"]) == ("failed", "rank 1 was killed") and not report.left_out
    assert (run["epochs_done"], run["steps_done"]) == (5, 60) == (len(epochs), len(steps))
    assert run["accuracy"] == pytest.approx(float(epochs[-1]["test_accuracy"]), rel=1e-14)
    assert run["best_accuracy"] == pytest.approx(max(float(row["test_accuracy"]) for row in epochs), rel=1e-14)
    assert run["iterations_per_second"] == pytest.approx(1 / mean(steps[10:], "step_s"))
    assert run["samples_per_second"] == pytest.approx(128 / mean(steps[10:], "step_s"))
    assert run["encode_s"] == pytest.approx(mean(steps[10:], "encode_s"))
    assert run["time_s"] == pytest.approx(float(steps[-1]["time_s"]), rel=1e-14)


def test_warm_up_is_what_the_config_says_and_nothing_in_a_shorter_run(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for warmup in (30, 60):
        fabricate.run(sweep, fabricate.config(warmup_steps=warmup), run_directory.FAILED)
    for run in reports.load(sweep).runs.to_dict("records"):
        steps = rows_of(Path(run["directory"]) / run_directory.STEPS)
        late = steps[30:] if run["warmup_steps"] == 30 else steps
        assert run["iterations_per_second"] == pytest.approx(1 / mean(late, "step_s"))


def test_ranks_that_finished_unnoticed_are_done(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    (directory,) = (sweep / run_directory.RUNS).iterdir()
    for content in ('{"format": 1, "status": "running", "attempts": []}', "{", ""):
        (directory / run_directory.STATE).write_text(content)
        assert list(reports.load(sweep).runs["status"]) == ["done"]


def test_a_torn_last_line_is_dropped_without_a_word(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    (directory,) = (sweep / run_directory.RUNS).iterdir()
    with (directory / run_directory.EPOCHS).open("a") as file:
        file.write("16,192,0.9,0.0")
    report = reports.load(sweep)
    assert list(report.epochs["epoch"]) == list(range(1, 16)) and not report.left_out


def test_damaged_lines_are_counted_and_the_others_used(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config(workers=2), fabricate.config(workers=4)])
    damaged, whole = sorted((sweep / run_directory.RUNS).iterdir())
    lines = (damaged / run_directory.EPOCHS).read_text().splitlines()
    lines[3] = "\x00\x01\xff" + '"' + lines[3]
    lines[5] += ",1,2,3,4,5,6,7"
    lines[7] = ""
    lines[9] = lines[9].replace(",", ",inf,", 1).rpartition(",")[0]
    (damaged / run_directory.EPOCHS).write_text("\n".join(lines) + "\n")
    report = reports.load(sweep)
    found = report.epochs[report.epochs["run"] == damaged.name]
    assert set(found["epoch"]) == set(range(1, 16)) - {3, 5, 7}
    assert found[found["epoch"] == 9]["step"].isna().all(), "not a count"
    assert list(report.epochs[report.epochs["run"] == whole.name]["epoch"]) == list(range(1, 16))
    assert reasons(report) == {"epochs.csv": "damaged lines left out: 3 of 15"}


def test_what_was_written_twice_counts_as_written_last(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    (directory,) = (sweep / run_directory.RUNS).iterdir()
    again = {name: "0" for name in csv_columns.EPOCH_COLUMNS} | {"epoch": "7", "test_accuracy": "0.125"}
    files.append_rows(directory / run_directory.EPOCHS, csv_columns.EPOCH_COLUMNS, [again])
    epochs = reports.load(sweep).epochs
    assert list(epochs["epoch"]) == list(range(1, 16))
    assert epochs["test_accuracy"][6] == 0.125


def test_evaluations_within_an_epoch_are_rows_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / run_directory.EPOCHS
    path.write_text("epoch,step,test_loss\n1,5,3\n1,10,2\n2,15,1.5\n2,20,1\n2,20,0.5\n")
    found, problem = csv_rows.read(path, csv_rows.EPOCHS)
    columns = csv_rows.EPOCHS.columns
    assert problem is None and list(found[columns.index("step")]) == [5, 10, 15, 20]
    assert list(found[columns.index("test_loss")]) == [3, 2, 1.5, 0.5]


def test_columns_may_lack_or_be_more_or_elsewhere(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    old = fabricate.run(sweep, fabricate.config(seed=0))
    (old / run_directory.EPOCHS).write_text("consensus,test_accuracy,epoch\n0.5,0.25,1\n0.5,0.75,2\n")
    new = fabricate.run(sweep, fabricate.config(seed=1))
    report = reports.load(sweep)
    assert list(report.epochs.groupby("run", observed=True).size()[[old.name, new.name]]) == [2, 15]
    assert list(report.epochs[report.epochs["run"] == old.name]["test_accuracy"]) == [0.25, 0.75]
    assert reasons(report) == {"epochs.csv": "no rows after epoch 2, though epoch 15 was reached"}


BINARY = bytes(range(256)) * 4 + b"\n" + bytes(range(256))
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "newline": lambda path: path.write_bytes(b"\n\n\n"),
    "binary": lambda path: path.write_bytes(BINARY),
    "not UTF-8": lambda path: path.write_bytes(b"caf\xe9: \xff\xfe\n"),
    "a list": lambda path: path.write_bytes(b"[1, 2, 3]\n"),
    "nested": lambda path: path.write_bytes(b"[" * 5000 + b"\n"),
    "a directory": lambda path: shutil.copytree(
        path.parent / "attempt-1", path.rename(path.parent / "old").parent / path.name
    ),
    "newer": lambda path: path.write_bytes(b'{"format": 2, "status": "done", "workers": 2}\n'),
    "wrong types": lambda path: path.write_bytes(
        b'{"status": ["x"], "reason": {"a": 1}, "attempts": {"0": 1}, "oversubscribed": "no", "accuracy": "high", '
        b'"steps": 1.5, "epochs": 1e999, "parameters": 1' + b"0" * 400 + b', "hosts": "me", "phases_s": [1], '
        b'"iterations_per_second": 0, "compressor": ["a", {"b": 1}], "workers": {"name": {"name": 3}}}\n'
    ),
    "hostile": lambda path: path.write_bytes(
        b'{"status": "\\ud800\\u001b[31m", "reason": "\\u0000\\n", "workers": 1}\n'
    ),
}


SILENT = {  # what is not worth a word: JSON is YAML, and what has not begun yet has no file
    run_directory.CONFIG: {"wrong types"},
    run_directory.STATE: {"wrong types", "missing"},
    run_directory.RESULT: {"wrong types"},
    run_directory.EPOCHS: set(),
    run_directory.STEPS: set(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SILENT)
def test_no_file_makes_it_fail(name: str, tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config("qsgd", 2)])
    broken = {damage: fabricate.run(sweep, fabricate.config(seed=seed)) for seed, damage in enumerate(DAMAGE, 1)}
    for damage, directory in broken.items():
        DAMAGE[damage](directory / name)
    report = build_report(sweep, pictures=["png"] if name == run_directory.EPOCHS else []).report
    assert "qsgd" in set(report.runs["compressor"])
    assert len(report.epochs) >= 15 and len(report.steps) >= 180
    told = {entry.path for entry in report.left_out}
    for damage, directory in broken.items():
        is_told = not told.isdisjoint({directory, directory / name})
        if damage != "hostile":  # whether YAML may hold a surrogate depends on its parser
            assert is_told == (damage not in SILENT[name]), damage
        if name == run_directory.CONFIG:
            assert (directory.name in set(report.runs["run"])) != is_told, damage


def test_rows_that_a_result_knows_of_are_missed(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for seed, data in enumerate((b"", b"\x00\xff", None, b"epoch,step\n")):
        directory = fabricate.run(sweep, fabricate.config(seed=seed), name=str(seed))
        (directory / run_directory.EPOCHS).unlink() if data is None else (directory / run_directory.EPOCHS).write_bytes(
            data
        )
    for status in (run_directory.RUNNING, run_directory.FAILED):
        (fabricate.run(sweep, fabricate.config(), status, name=status) / run_directory.EPOCHS).unlink()
    report = reports.load(sweep)
    assert set(report.epochs["run"]) == set()
    told = {entry.path.parent.name: entry.reason for entry in report.left_out}
    assert told == dict.fromkeys("0123", "no rows, though epoch 15 was reached")


def test_a_run_that_is_recorded_and_has_no_directory_is_left_out(tmp_path: Path) -> None:
    nine = fabricate.nine(tmp_path / "nine")
    kept, gone, _ = sorted(nine.glob("runs/*"))[:3]
    entries = [planned_runs.entry(path.name, f"{number}", [], {}) for number, path in enumerate((kept, gone))]
    planned_runs.note(nine, entries)
    shutil.rmtree(gone)
    report = reports.load(nine)
    assert len(report.runs) == 8 and reasons(report) == {gone.name: f"missing: {planned_runs.GONE}"}


def test_a_config_that_contains_itself_is_left_out(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    broken = fabricate.run(sweep, fabricate.config(seed=1))
    (broken / run_directory.CONFIG).write_text("&a\nmodel: *a\n")
    report = reports.load(sweep)
    assert len(report.runs) == 1 and reasons(report) == {
        "config.yaml": "has an alias (*a), which no file of Gradsweep has"
    }


def test_odd_names_are_told_apart_and_made_printable(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    names = ["a b", "a=b,c", 'x="><script>alert(1)<|script>', "ünïcode-é", "line\nbreak", "\x1b[31m", "$\\frac{"]
    for seed, name in enumerate(names):
        fabricate.run(sweep, fabricate.config(seed=seed), name=name)
    (sweep / run_directory.RUNS / "not-utf8-\udcff").mkdir()
    (sweep / run_directory.RUNS / ".hidden").mkdir()
    report = reports.load(sweep)
    assert len(report.runs) == len(report.epochs.groupby("run", observed=True)) == len(names)
    assert all(name.isprintable() for name in report.runs["run"])
    assert [entry.reason for entry in report.left_out] == ["its name is not UTF-8"]


def test_sweeps_are_found_at_every_level(tmp_path: Path) -> None:
    root = tmp_path / "output"
    for name in ("2026-11-20/10-00-00", "2026-11-20/11-00-00-name", "2026-11-21/09-00-00"):
        fabricate.sweep(root / name, [fabricate.config()])
    assert len(reports.load(root).runs) == 3
    names = ["2026-11-20/10-00-00", "2026-11-20/11-00-00-name"]
    assert list(reports.load(root / "2026-11-20").runs["sweep"]) == names
    assert len(reports.load(root, root / "2026-11-20", root / "2026-11-20/10-00-00").runs) == 3, "each once"


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_place_without_runs_is_named_with_what_was_expected(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    with pytest.raises(errors.UsageError, match=f"^{path}: no runs here; expected .*runs/.*output/<date>"):
        reports.load(path)


def test_importing_is_light() -> None:
    code = "import reports, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"pandas", "numpy", "matplotlib", "jinja2", "rich", "yaml"} & set(loaded.split())


@pytest.mark.thorough
def test_nothing_that_trains_or_configures_is_loaded(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config()])
    code = "import sys; from reports.__main__ import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, "--quiet", "--no-plots", str(sweep)]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numba", "hydra", "omegaconf", "mpi4py", "trainers"} & set(loaded)
    assert "matplotlib" not in loaded and "jinja2" in loaded


def test_frames_of_several_sweeps_have_all_their_keys(tmp_path: Path) -> None:
    fabricate.sweep(tmp_path / "all/a", [fabricate.config("svd")])
    fabricate.sweep(tmp_path / "all/b", [fabricate.config("qsgd")])
    runs = reports.load(tmp_path / "all").runs.set_index("sweep")
    assert runs["compressor.rank"]["all/a"] == 3 and runs["compressor.levels"]["all/b"] == 7
    assert runs["compressor.rank"]["all/b"] is pd.NA


def test_runs_of_an_earlier_version_have_no_network_beside_others_that_may(tmp_path: Path) -> None:
    earlier, later = fabricate.config("none"), {**fabricate.config("qsgd"), "network": {"name": "real"}}
    alone = fabricate.sweep(tmp_path / "a", [earlier])
    assert "network" not in reports.load(alone).runs
    fabricate.run(alone, later)
    runs = reports.load(alone).runs.set_index("compressor")
    assert runs["network"].to_dict() == {"none": "none", "qsgd": "real"}
