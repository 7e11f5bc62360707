"""Any measure by any keys, as a user types it."""

from __future__ import annotations

import csv
import shutil
import statistics
from pathlib import Path

import pytest

import reports
from gradsweep import run_directory
from reports.__main__ import main
from reports.analysis.table import MEANINGS, STAR
from tests.reports import fabricate


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compressors, two memories, two learning rates, three seeds; read only but for its tables."""
    grid = [
        fabricate.config(compressor, 2, seed=seed, optimizer__lr=lr, memory={"name": memory}, epochs=4)
        for compressor in ("none", "qsgd")
        for memory in ("none", "residual")
        for lr in (0.001, 0.1)
        for seed in (1, 2, 3)
    ]
    directory = tmp_path_factory.mktemp("output") / "2026-11-20" / "pivot"
    return fabricate.sweep(directory, grid, swept=["compressor", "memory", "optimizer.lr", "seed"])


def records(sweep: Path, name: str) -> list[dict[str, str]]:
    with (sweep / "tables" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_and_columns_are_any_keys(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--rows", "memory,compressor", "--cols", "optimizer.lr", "--value", "throughput", "--format", "csv"]
    assert main([str(sweep), *typed]) == 0
    out = capsys.readouterr().out
    assert "optimizer.lr=0.001" in out and "Throughput by memory, compressor and optimizer.lr" in out
    assert out.splitlines()[-1].endswith("tables/throughput_by_memory_compressor_optimizer.lr.csv")
    runs = reports.load(sweep).runs
    found = records(sweep, "throughput_by_memory_compressor_optimizer.lr.csv")
    assert [(row["memory"], row["compressor"], row["optimizer.lr"]) for row in found[:3]] == [
        ("none", "none", "0.001"),
        ("none", "none", "0.1"),
        ("none", "qsgd", "0.001"),
    ]
    for row in found:
        members = runs[(runs["memory"] == row["memory"]) & (runs["compressor"] == row["compressor"])]
        speeds = list(members[members["optimizer.lr"] == float(row["optimizer.lr"])]["iterations_per_second"])
        assert int(row["n"]) == 3 and float(row["mean"]) == pytest.approx(statistics.mean(speeds))
        assert float(row["std"]) == pytest.approx(statistics.stdev(speeds))
        assert int(row["pairs"]) == (3 if row["compressor"] == "qsgd" else 0)


def test_what_shares_a_cell_is_said(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(sweep), "--rows", "compressor", "--value", "loss", "--where", "memory=residual"]) == 0
    out = capsys.readouterr().out
    assert "only runs with memory=residual" in out
    assert "n=6 runs, which differ also in optimizer.lr (0.001, 0.1)" in out
    found = records(sweep, "loss_by_compressor_workers_memory-residual.csv")
    assert [(row["compressor"], row["n"], row["pairs"]) for row in found] == [("none", "6", "0"), ("qsgd", "6", "6")]
    caption = (sweep / "tables" / "loss_by_compressor_workers_memory-residual.md").read_text()
    assert "memory=residual" in caption.splitlines()[-1], "what is constant now"


def test_conditions_choose_runs(sweep: Path) -> None:
    typed = ["--where", "optimizer.lr=1e-3", "--where", "seed=1,3", "--where", "compressor=qsgd", "--cols", "memory"]
    assert main([str(sweep), "--quiet", *typed]) == 0
    (name,) = (path.name for path in (sweep / "tables").glob("accuracy_by_compressor_memory_optimizer*.csv"))
    assert [(row["memory"], row["n"]) for row in records(sweep, name)] == [("none", "2"), ("residual", "2")]


def test_speed_up_knows_the_baseline_that_a_condition_leaves_out(sweep: Path) -> None:
    assert main([str(sweep), "--quiet", "--value", "speedup", "--where", "compressor=qsgd"]) == 0
    (row,) = records(sweep, "speedup_by_compressor_workers_compressor-qsgd.csv")
    assert int(row["n"]) == 12 and 0.5 < float(row["mean"]) < 2


def test_another_baseline(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--rows", "compressor", "--cols", "memory,optimizer.lr", "--value", "speedup", "--against", "memory=none"]
    assert main([str(sweep), *typed]) == 0
    assert "Speed-up over memory=none at equal other keys" in capsys.readouterr().out
    runs = reports.load(sweep).runs.set_index(["compressor", "memory", "optimizer.lr", "seed"])["iterations_per_second"]
    for row in records(sweep, "speedup_by_compressor_memory_optimizer.lr.csv"):
        place = [(row["compressor"], memory, float(row["optimizer.lr"])) for memory in (row["memory"], "none")]
        ratios = [runs[(*place[0], seed)] / runs[(*place[1], seed)] for seed in (1, 2, 3)]
        assert float(row["mean"]) == pytest.approx(statistics.mean(ratios))
        assert row["pairs"] == ("3" if row["memory"] == "residual" else "0")


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        (
            ["--rows", "modle"],
            ["--rows modle: no such column; did you mean model? valid is one of compressor, memory, optim"],
        ),
        (["--rows", "lr"], ["--rows lr: no such column; did you mean optimizer.lr?"]),
        (["--cols", "worker"], ["--cols worker: no such column; did you mean workers?"]),
        (["--value", "acuracy"], ["--value acuracy: no such column; did you mean accuracy?", "time_to_"]),
        (
            ["--where", "memory=residul"],
            ["memory=residul: no run has that; did you mean residual? there are none, resid"],
        ),
        (["--where", "memory"], ["--where memory: expected key=value"]),
        (["--where", "sed=1"], ["--where sed: no such column; did you mean seed?"]),
        (["--rows", "seed", "--cols", "seed"], ["seed is there twice"]),
        (["--value", "efficiency"], ["--value efficiency: no run has it"]),
        (["--against", "workers=3"], ["--against workers=3: no run has that", "there are 2"]),
        (["--against", "dataset=digits"], ["--against: all runs have dataset=digits, so there is nothing to compare"]),
        (["--against", "compressor"], ["--against compressor: expected key=value"]),
        (["--format", "pdf,xls"], ["--format pdf: valid are csv, md, tex, html, parquet"]),
        (["--target", "95"], ["--target 95: expected a share"]),
        (["--value", "time_to_200"], ["--value time_to_200: expected percent above 0 and up to 100"]),
    ],
)
def test_what_cannot_be_is_one_line(
    typed: list[str], parts: list[str], sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(sweep), "--no-plots", *typed]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(part in error for part in parts), error


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("loss", "number"),
        ("train_loss", "number"),
        ("encode_s", "s"),
        ("parameters", "number"),
        ("matmul_gflop_s", "GFLOP/s"),
        ("copy_gb_s", "GB/s"),
        ("loop_mops", "million/s"),
    ],
)
def test_columns_of_runs_have_their_units(value: str, unit: str, sweep: Path) -> None:
    assert main([str(sweep), "--quiet", "--format", "csv", "--value", value]) == 0
    assert {row["unit"] for row in records(sweep, f"{value}_by_compressor_workers.csv")} == {unit}


def test_what_is_not_tested_names_no_baseline(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for value in ("step", "loss"):
        assert main([str(sweep), "--format", "csv", "--value", value]) == 0
        said[value] = capsys.readouterr().out
    assert "baseline: compressor=none" in said["loss"] and "baseline" not in said["step"]
    assert "(pairs are equal in keys and seed; of times, pairs are equal in keys and closest in time" in MEANINGS[STAR]


def test_targets_and_formats_of_a_report(sweep: Path) -> None:
    assert main([str(sweep), "--quiet", "--no-plots", "--target", "0.2,0.355", "--format", "html,parquet"]) == 0
    names = {path.name for path in (sweep / "tables").iterdir()}
    assert {"time_to_20.html", "time_to_35.5.parquet", "bytes_to_35.5.html", "accuracy.parquet"} <= names
    assert not {"accuracy.csv", "accuracy.tex", "time_to_20.md"} & names


def test_no_table_of_an_earlier_report_is_left_as_it_was(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config("none"), fabricate.config("qsgd")])
    report = [str(sweep), "--quiet", "--no-plots", "--format"]
    assert main([*report, "csv,md", "--target", "0.2"]) == 0
    assert main([str(sweep), "--quiet", "--format", "csv", "--value", "time_to_20"]) == 0
    (sweep / "tables" / "mine.csv").touch()
    shutil.rmtree(next((sweep / run_directory.RUNS).glob("*none*")))
    assert main([*report, "csv", "--target", "0.3"]) == 0
    names = {path.name for path in (sweep / "tables").iterdir()}
    assert not {"time_to_20.csv", "bytes_to_20.md", "speedup.csv"} & names
    assert {
        "time_to_30.csv",
        "accuracy.csv",
        "accuracy.md",
        "time_to_20_by_compressor_workers.csv",
        "mine.csv",
    } <= names
    assert "time_to_30.md" not in names and "| none" not in (sweep / "tables" / "accuracy.md").read_text()


def test_runs_that_did_not_end_well_are_counted(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config(seed=seed) for seed in (1, 2)])
    fabricate.run(sweep, fabricate.config(seed=3), run_directory.FAILED)
    fabricate.run(sweep, fabricate.config("qsgd", seed=1), run_directory.DIVERGED)
    assert main([str(sweep), "--quiet"] + ["--rows", "compressor"]) == 0
    none, qsgd = records(sweep, "accuracy_by_compressor_workers.csv")
    assert [none[column] for column in ("n", "failed", "diverged", "missing")] == ["2", "1", "0", "0"]
    assert [qsgd[column] for column in ("n", "failed", "diverged", "missing")] == ["0", "0", "1", "2"]
    assert qsgd["mean"] == "" and main([str(sweep), "--rows", "compressor", "--quiet", "--format", "md"]) == 0
    assert "1 diverged, 2 missing" in (sweep / "tables" / "accuracy_by_compressor_workers.md").read_text()


def test_names_with_commas_equals_signs_and_nothing_can_be_asked_for(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config("a=b, <c>", seed=seed) for seed in ("x,y", None, 3)])
    for value, n in (("x,y", "1"), ("null", "1"), ("3,x,y", None), ("3.0", "1"), ("null,3", "2")):
        status = main([str(sweep), "--quiet", "--format", "csv", "--where", f"seed={value}", "--value", "loss"])
        assert status == (0 if n else 2)
        for path in (sweep / "tables").glob("*.csv") if n else ():
            (row,) = records(sweep, path.name)
            assert (row["compressor"], row["n"]) == ("a=b, <c>", n)
            path.unlink()


def test_without_any_run_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config()])
    for path in sweep.glob("runs/*/config.yaml"):
        path.unlink()
    assert main([str(sweep), "--rows", "compressor"]) == 2
    assert capsys.readouterr().err == "reports: there are run directories, but no run that could be read\n"
