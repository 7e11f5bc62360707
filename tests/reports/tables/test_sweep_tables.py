"""Every number in a table can be found in a file that a run left behind."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import reports
from gradsweep import csv_columns, files, run_directory
from reports.analysis.grid import lay_out_runs
from reports.analysis.table import ReportTable
from reports.building.sweep_report import BuiltReport, build_report
from reports.plots import layout
from reports.reading.text import choose_byte_unit, clean, format_number, format_setting, join_words
from reports.tables import formats
from reports.tables.sweep_tables import build_tables, build_unfinished_table, write_headline
from tests.reports import fabricate


def made(sweep: Path) -> dict[str, ReportTable]:
    return {table.name: table for table in build_tables(lay_out_runs(reports.load(sweep).runs))}


def parsed(table: ReportTable) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.to_csv(table).decode())))


def means(table: ReportTable) -> dict[tuple[str, int], str]:
    """The numbers of a table of single runs, by compressor and workers."""
    return {(row["compressor"], int(row["workers"])): row["mean"] for row in parsed(table)}


def texts(table: ReportTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def results(sweep: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """What the runs themselves say, by compressor and workers."""
    found = {}
    for path in sweep.glob("runs/*/result.json"):
        name, workers = path.parent.name.split("-")[0].split(",")
        found[name.removeprefix("compressor="), int(workers.removeprefix("workers="))] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(
    ("name", "unit", "key"),
    [
        ("throughput", "it/s", "iterations_per_second"),
        ("throughput_samples", "samples/s", "samples_per_second"),
        ("accuracy", "fraction", "accuracy"),
        ("accuracy_best", "fraction", "best_accuracy"),
        ("payload", "B", "payload_bytes"),
        ("sent", "B", "sent_bytes"),
        ("compression_ratio", "x fp32", "compression_ratio"),
    ],
)
def test_cells_are_the_numbers_of_the_runs(name: str, unit: str, key: str, nine: Path) -> None:
    table = made(nine)[name]
    assert list(means(table)) == [(c, workers) for c in ("none", "qsgd", "svd") for workers in (2, 4, 8)]
    assert {place: float(mean) for place, mean in means(table).items()} == {
        place: result[key] for place, result in results(nine).items()
    }
    assert {row["unit"] for row in parsed(table)} == {unit} and {row["n"] for row in parsed(table)} == {"1"}


def test_throughput_agrees_with_the_steps(nine: Path) -> None:
    found = means(made(nine)["throughput"])
    for directory in nine.glob("runs/*"):
        name, workers = (part.split("=")[1] for part in directory.name.split("-")[0].split(","))
        with (directory / run_directory.STEPS).open() as file:
            steps = [float(row["step_s"]) for row in csv.DictReader(file)][10:]
        assert float(found[name, int(workers)]) == pytest.approx(len(steps) / sum(steps))


def test_speed_up_is_against_none_at_equal_workers(nine: Path) -> None:
    found = results(nine)
    table = made(nine)["speedup"]
    for (compressor, workers), mean in means(table).items():
        expected = found[compressor, workers]["iterations_per_second"] / found["none", workers]["iterations_per_second"]
        assert float(mean) == pytest.approx(expected)
    assert means(table)["none", 8] == "1.0" and table.title == "Speed-up over none at equal workers"


def test_speed_up_compares_runs_of_the_same_seed(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config(c, 2, seed=s) for c in ("none", "qsgd") for s in (0, 1)])
    fabricate.run(sweep, fabricate.config("qsgd", 2, seed=2))
    fabricate.run(sweep, fabricate.config("none", 2, seed=2), run_directory.FAILED)
    runs = {(run["compressor"], run["seed"]): run for run in reports.load(sweep).runs.to_dict("records")}
    table = made(sweep)["speedup"]
    speeds = [[runs[c, seed]["iterations_per_second"] for c in ("qsgd", "none")] for seed in (0, 1)]
    assert float(means(table)["qsgd", 2]) == pytest.approx(sum(first / second for first, second in speeds) / 2)
    assert [row[1].partition(" (")[2] for row in texts(table)] == ["n=2, 1 failed)", "n=2, 1 no baseline)"]
    assert [note for note in table.notes if note.startswith("no baseline: ")]


def test_speed_up_needs_a_baseline(tmp_path: Path) -> None:
    assert "speedup" not in made(fabricate.sweep(tmp_path / "s", [fabricate.config("qsgd")]))


def test_phases_are_shares_of_the_step(nine: Path) -> None:
    found = results(nine)
    rows = {(row["compressor"], int(row["workers"]), row["measure"]): row for row in parsed(made(nine)["phases"])}
    for (compressor, workers), result in found.items():
        step_s = 1 / result["iterations_per_second"]
        assert float(rows[compressor, workers, "step"]["mean"]) == pytest.approx(step_s)
        shares = {
            phase: float(rows[compressor, workers, f"share_{phase}"]["mean"])
            for phase in (*csv_columns.PHASES, "other")
        }
        assert shares["encode"] == pytest.approx(result["phases_s"]["encode"] / step_s)
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["other"] == pytest.approx(1 - 1 / 1.03), "what lies between the phases"


def test_people_read_rounded_numbers_in_units_that_suit(nine: Path) -> None:
    shown, found = made(nine), results(nine)
    assert [column.shown for column in shown["sent"].columns] == ["", "kB", "kB", "kB"]
    expected = found["qsgd", 2]["sent_bytes"] / 1e3
    assert texts(shown["sent"])[1][:2] == ["qsgd", f"{expected:.1f}"]
    assert texts(shown["accuracy"])[0][1] == f"{100 * found['none', 2]['accuracy']:.2f}"
    assert "| compressor   |   2 workers [%] |" in formats.to_markdown(shown["accuracy"]).decode()


def concerns_times(name: str) -> bool:
    return name in ("time", "efficiency", "speedup", "phases", "runs", "accuracy_equal_time") or name.startswith(
        ("throughput", "time_to")
    )


def test_oversubscribed_runs_are_marked_in_every_table_of_times(nine: Path) -> None:
    for name, table in made(nine).items():
        for row in parsed(table):
            assert row["oversubscribed"] in (("1", "true") if row["workers"] != "2" else ("0", "false"))
        for cells in texts(table):
            if not concerns_times(name):
                assert "†" not in "".join(cells)
            elif name == "runs":
                assert ["†" in text for text in cells].count(True) == 3 * (cells[1] != "2"), "it/s, samples/s, time"
            elif name == "phases":
                assert all(text.endswith("†") == (cells[1] != "2") for text in cells[2:])
            else:
                assert [text.endswith("†") for text in cells] == [False, False, True, True]
        assert ("†: more workers than cores" in " ".join(table.notes)) == concerns_times(name)
        assert ("†: more workers than cores" in formats.to_markdown(table).decode()) == concerns_times(name)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main job, whose runs of qsgd shared their cores."""
    sweep = fabricate.nine(tmp_path_factory.mktemp("output") / "2026-11-20" / "shared")
    for path in (sweep / run_directory.RUNS).glob("compressor=qsgd*/state.json"):
        files.write_json(path, {**json.loads(path.read_text()), "shared_cores": True})
    return sweep


def test_runs_that_shared_cores_are_marked_in_every_table_of_times(shared: Path) -> None:
    for name, table in made(shared).items():
        for row in parsed(table):
            assert (row["shared_cores"] in ("1", "true")) == (row["compressor"] == "qsgd")
        for cells in texts(table):
            marks = [text[len(text.rstrip("†‡")) :] for text in cells]
            if not concerns_times(name):
                assert not any(marks)
            elif name == "runs":
                assert any(mark.endswith("‡") for mark in marks) == (cells[0] == "qsgd")
            elif name == "phases":
                assert set(marks[2:]) == {"†" * (cells[1] != "2") + "‡" * (cells[0] == "qsgd")}
            else:
                assert marks[1:] == (["‡", "†‡", "†‡"] if cells[0] == "qsgd" else ["", "†", "†"])
        for said in ("‡: cores were shared", "†: more workers than cores"):
            assert any(note.startswith(said) for note in table.notes) == concerns_times(name)


def shorten(sweep: Path, pattern: str, steps: int, timed: int | None, left_out: int = 10) -> None:
    """Runs that have ended after so few steps; of an earlier version without `timed`."""
    for path in (sweep / run_directory.RUNS).glob(f"{pattern}/result.json"):
        result = {**json.loads(path.read_text()), "steps": steps, "warmup_steps": left_out}
        files.write_json(path, result if timed is None else {**result, "timed_steps": timed})


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of five seeds a cell; runs of qsgd are of few steps, those of svd shorter than their warm-up."""
    grid = [fabricate.config(name, seed=seed) for name in ("none", "qsgd", "svd", "topk") for seed in range(5)]
    sweep = fabricate.sweep(tmp_path_factory.mktemp("output") / "2026-11-20" / "short", grid)
    shorten(sweep, "compressor=qsgd*", 39, 29)
    shorten(sweep, "compressor=svd*", 5, None, left_out=0)
    shorten(sweep, "compressor=topk*", 40, None)
    return sweep


def test_throughputs_of_few_steps_are_marked_in_every_table_of_them(short: Path) -> None:
    is_few = {"none": False, "qsgd": True, "svd": True, "topk": False}
    said = "throughputs that say little: of 29 timed steps (5 runs) and of all 5 steps, warm-up included (5 runs)"
    for name, table in made(short).items():
        for row in parsed(table):
            assert (row["few_steps"] in ("5", "true")) == is_few[row["compressor"]]
        if not (name.startswith("throughput") or name in ("speedup", "efficiency", "phases", "runs")):
            assert "‖" not in formats.to_markdown(table).decode()
            continue
        for cells in texts(table):
            assert any("‖" in text for text in cells) == is_few[cells[0]], name
        assert said in table.notes and any(note.startswith("‖: fewer than 30 timed steps") for note in table.notes)
        for write, mark in (("md", "‖"), ("html", "‖"), ("tex", r"\textsuperscript{$\|$}")):
            found = formats.FORMATS[write](table).decode()
            assert found.count(mark) >= 3 and said in found
    timed = {(row["compressor"], row["timed_steps"]) for row in parsed(made(short)["runs"])}
    assert timed == {("none", "170"), ("qsgd", "29"), ("svd", "0"), ("topk", "30")}


def test_throughputs_of_few_steps_are_neither_the_highest_nor_tested(short: Path, tmp_path: Path) -> None:
    table = made(short)["throughput"]
    found = {row["compressor"]: row for row in parsed(table)}
    assert found["topk"]["p_holm"] and float(found["topk"]["p_holm"]) < 0.05 and found["topk"]["pairs"] == "5"
    for name in ("qsgd", "svd"):
        assert found[name]["pairs"] == "0" and not found[name]["p"] and found[name]["n"] == "5"
    stars = {row[0]: "*" in row[1] for row in texts(table)}
    assert stars == {"none": False, "qsgd": False, "svd": False, "topk": True}
    accuracy = {row["compressor"]: row for row in parsed(made(short)["accuracy"])}
    assert accuracy["svd"]["pairs"] == "5", "which does not depend on times"

    runs = reports.load(short).runs
    runs.loc[runs["compressor"] == "qsgd", "iterations_per_second"] *= 1000
    assert "Highest throughput: " in write_headline(lay_out_runs(runs)) and "(qsgd" not in write_headline(
        lay_out_runs(runs)
    )
    shutil.copytree(short, tmp_path / "none-timed")
    shorten(tmp_path / "none-timed", "*", 20, 10)
    all_few = tmp_path / "none-timed"
    assert "Highest throughput" not in write_headline(lay_out_runs(reports.load(all_few).runs))
    assert not any(row["p"] for row in parsed(made(all_few)["speedup"]))


def test_a_mixed_cell_is_tested_by_its_long_runs(short: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "mixed"
    shutil.copytree(short, sweep)
    for seed in (0, 1):
        (run,) = (run for run in run_directory.runs_of(sweep) if is_run(run, "topk", seed))
        files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), "timed_steps": 3})
    (row,) = (row for row in parsed(made(sweep)["throughput"]) if row["compressor"] == "topk")
    assert (row["n"], row["pairs"], row["few_steps"]) == ("5", "3", "2")


def is_run(run: run_directory.Run, compressor: str, seed: int) -> bool:
    config = run.path(run_directory.CONFIG).read_text()
    return f"name: {compressor}\n" in config and f"\nseed: {seed}\n" in config


def test_a_run_without_a_result_counts_its_rows(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [])
    for steps, (epochs, warmup) in {12: (3, 12), 24: (6, 4), 60: (15, 10)}.items():
        config = {**fabricate.config(epochs=epochs), "warmup_steps": warmup}
        assert (
            len((fabricate.run(sweep, config, run_directory.FAILED) / run_directory.STEPS).read_text().splitlines())
            == steps + 1
        )
    runs = reports.load(sweep).runs.set_index("steps_done")
    assert runs["timed_steps"].to_dict() == {12: 0, 24: 20, 60: 50}
    assert runs["few_steps"].to_dict() == {12: True, 24: True, 60: False}


def test_the_page_and_its_pictures_say_how_few_steps_were_timed(short: Path) -> None:
    built = build_report(short, pictures=())
    page = (short / "report.html").read_text()
    assert "‖: fewer than 30 timed steps" in page and "of 29 timed steps (5 runs)" in page and built.tables
    grid = lay_out_runs(built.report.runs)
    found = layout.lay_out_panels(grid, grid.runs, ["workers"])
    assert (
        found.find_unfair() == ["few_steps"]
        and found.explain_unfair("few_steps") == "29 timed steps or 5 warm-up steps"
    )


def test_a_sweep_of_one_seed_says_so(nine: Path) -> None:
    shown = made(nine)
    for name, table in shown.items():
        assert ("single runs, n=1" in table.spread) == (name != "runs")
        for write in (formats.to_markdown, formats.to_latex, formats.to_html):
            assert table.spread in write(table).decode(), "beside the title"
    assert "samples per second and worker, as a share of those with 2 workers" in shown["efficiency"].notes


def test_a_difference_that_no_seed_changes_is_explained(tmp_path: Path) -> None:
    grid = [fabricate.config(name, seed=seed) for name in ("none", "qsgd") for seed in range(2)]
    found = {table.name: table for table in build_report(fabricate.sweep(tmp_path / "s", grid), pictures=()).tables}
    said = {name: any("nothing to test" in remark for remark in table.remarks) for name, table in found.items()}
    assert said["payload"] and "*" not in "".join(cell.text for row in found["payload"].rows for cell in row)
    assert not said["throughput"] and not said["runs"]


def test_fair_sweeps_say_nothing_of_shared_cores(nine: Path) -> None:
    for table in made(nine).values():
        assert "‡" not in formats.to_markdown(table).decode()
        assert {row["shared_cores"] for row in parsed(table)} <= {"0", "false"}
    assert "shared" not in write_headline(lay_out_runs(reports.load(nine).runs))


def test_the_headline_compares_no_unfair_times(nine: Path, shared: Path) -> None:
    runs = reports.load(shared).runs
    text = write_headline(lay_out_runs(runs))
    assert "3 runs shared cores with others" in text
    fair = runs[(runs["workers"] == 2) & (runs["compressor"] != "qsgd")]["iterations_per_second"].max()
    assert f"Highest throughput: {format_number(fair)} it/s" in text


def test_the_page_marks_shared_cores(shared: Path) -> None:
    built = build_report(shared, pictures=())
    page = (shared / "report.html").read_text()
    assert "‡: cores were shared" in page and "3 runs shared cores" in page
    assert built.tables


def test_what_is_no_number_is_a_word(troubled: BuiltReport) -> None:
    for table in troubled.tables[:-2]:
        if table.name not in (
            "throughput",
            "throughput_samples",
            "accuracy",
            "accuracy_best",
            "time",
            "payload",
            "sent",
        ):
            continue
        cells = {row[0]: [cell.rstrip("†").replace(",", "") for cell in row[1:]] for row in texts(table)}
        assert cells["none"][2] == "pending" and cells["qsgd"][1:] == ["running", "no run"]
        assert cells["svd"] == ["failed", "diverged", "not measured"]
        words = {"pending", "running", "no run", "failed", "diverged", "not measured"}
        for text in (text for row in cells.values() for text in row if text not in words):
            assert float(text) > 0, "neither a gap, nor zero, nor NaN"
        notes = " ".join(table.notes)
        assert "no run: not a point of the sweep" in notes and "not measured: " in notes and "failed" not in notes


def test_runs_are_listed_with_status_and_reason(troubled: BuiltReport) -> None:
    (table,) = (table for table in troubled.tables if table.name == "runs")
    rows = {(row["compressor"], row["workers"]): row for row in parsed(table)}
    assert len(rows) == len(table.rows) == 9
    assert rows["svd", "4"]["status"] == "diverged" and rows["svd", "4"]["accuracy"] == ""
    assert rows["svd", "4"]["reason"] == "loss is nan at step 61" and rows["none", "2"]["reason"] == ""
    assert [cell.text for row in build_unfinished_table(troubled.grid).rows for cell in row if "nan" in cell.text]
    reasons = {tuple(row[:2]): row[-2:] for row in texts(build_unfinished_table(troubled.grid))}
    assert reasons["svd", "4"] == ["diverged", "loss is nan at step 61"]
    assert reasons["none", "8"] == ["pending", "not started"] and len(reasons) == 4


def test_markdown_cannot_be_broken_by_names(troubled: BuiltReport) -> None:
    for table in troubled.tables:
        text = formats.to_markdown(table).decode()
        assert "<script>" not in text and "&lt;script&gt;" in text
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) == len(table.rows) + 2
        assert {line.replace("\\|", "").count("|") for line in lines} == {len(table.columns) + 1}


def test_the_headline_counts_and_names_the_best(nine: Path, troubled: BuiltReport) -> None:
    text = write_headline(lay_out_runs(reports.load(nine).runs))
    found = results(nine)
    (name, workers), best = max(found.items(), key=lambda item: item[1]["accuracy"])
    assert text.startswith("9 runs of 3 compressors with 2, 4 and 8 workers: 9 done. ")
    assert f"Highest test accuracy: {100 * best['accuracy']:.2f} % ({name}, {workers} workers)." in text
    fair = {place: result for place, result in found.items() if place[1] <= fabricate.CORES}
    (name, workers), best = max(fair.items(), key=lambda item: item[1]["iterations_per_second"])
    left_out = "6 runs (6 more workers than cores) do not count"
    highest = f"Highest throughput: {best['iterations_per_second']:.0f} it/s"
    assert f"{highest} ({name}, {workers} workers); {left_out}." in text
    assert "9 runs of 4 compressors" in write_headline(troubled.grid)
    for part in ("5 done", "1 pending", "1 running", "1 failed", "1 diverged"):
        assert part in write_headline(troubled.grid)


def test_the_headline_says_null_as_tables_do(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config(max_steps=None)])
    fabricate.run(sweep, fabricate.config(max_steps=9), run_directory.FAILED)
    assert write_headline(lay_out_runs(reports.load(sweep).runs)).count("(none, 2 workers, max_steps=null)") == 2


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (112.04, 3, "112"),
        (0.5, 3, "0.500"),
        (9.999, 3, "10.0"),
        (14336.0, 3, "14,300"),
        (98.333, 4, "98.33"),
        (100.0, 4, "100.0"),
        (0.0431, 3, "0.0431"),
        (1.5e-7, 3, "1.50e-7"),
        (2.5e12, 3, "2.50e12"),
        (-4.3149, 3, "-4.31"),
        (0.0, 3, "0"),
        (float("inf"), 3, "inf"),
    ],
)
def test_numbers_have_sensible_digits(value: float, digits: int, expected: str) -> None:
    assert format_number(value, digits) == expected


def test_small_texts() -> None:
    assert [format_setting(value) for value in (True, 0.1, 1.0, 7, "a", None, float("nan"))] == (
        ["true", "0.1", "1", "7", "a", "", ""]
    )
    assert (
        choose_byte_unit(999) == (1, "B")
        and choose_byte_unit(310248) == (1e3, "kB")
        and choose_byte_unit(4e9) == (1e9, "GB")
    )
    assert [join_words(words) for words in ([], ["2"], ["2", "4"], ["2", "4", "8"])] == [
        "",
        "2",
        "2 and 4",
        "2, 4 and 8",
    ]
    assert clean("a\x1b[31m\nb\udcff") == "a [31m b"
