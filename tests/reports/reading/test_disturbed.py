"""Which runs a report calls disturbed, and what it does with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import reports
from gradsweep import files, run_directory
from gradsweep.disturbance import SweepYardsticks
from reports.__main__ import main
from reports.analysis.compare import DISTURBED, compare
from reports.analysis.grid import lay_out_runs
from reports.analysis.measures import THROUGHPUT
from reports.building.sweep_report import build_report, read_report
from reports.plots import layout
from reports.tables import formats
from reports.tables.sweep_tables import write_headline
from tests.reports import fabricate
from tests.reports.tables.test_race_table import race

SLOWER = "its cores were 30 % slower than the best of the sweep for more than a tenth of its steps"


def measure(sweep: Path, pattern: str = "*", **yardstick: Any) -> None:
    """Give the results of those runs a yardstick."""
    for path in (sweep / run_directory.RUNS).glob(f"{pattern}/result.json"):
        content = json.loads(path.read_text())
        files.write_json(path, {**content, "yardstick": fabricate.yardstick(**yardstick)})


def read(sweep: Path) -> pd.DataFrame:
    return reports.load(sweep).runs.set_index(["compressor", "workers"])


@pytest.fixture
def disturbed(tmp_path: Path) -> Path:
    """The main job, whose runs of svd were disturbed."""
    sweep = fabricate.nine(tmp_path / "2026-11-20" / "disturbed")
    measure(sweep)
    measure(sweep, "compressor=svd*", slow=1.3)
    return sweep


def test_runs_are_judged_by_the_best_of_their_sweep(disturbed: Path) -> None:
    for _ in ("from the files", "from the cache"):
        runs = read(disturbed)
        assert runs["disturbed"].to_dict() == {place: place[0] == "svd" for place in runs.index}
        assert set(runs.loc["svd", "disturbance"]) == {SLOWER} and runs.loc["qsgd", "disturbance"].isna().all()
        assert set(runs.loc["svd", "drift"]) == {1.3} and set(runs["cores_of_others"]) == {0.0}
        assert not [column for column in runs if "yardstick" in str(column)]


def test_a_quicker_reading_of_another_run_changes_the_verdict_on_those_that_were_read_before(disturbed: Path) -> None:
    read(disturbed)
    measure(disturbed, "compressor=none,workers=2*", best=0.8e-3)
    runs = read(disturbed)
    assert runs[~runs["disturbed"]].index.to_list() == [("none", 2)]
    assert runs.loc[("qsgd", 2), "drift"] == pytest.approx(1.25)


def test_a_run_is_compared_on_its_own_host_and_within_its_own_sweep(disturbed: Path, tmp_path: Path) -> None:
    measure(disturbed, "compressor=qsgd*", host="node8", best=5e-3)
    runs = read(disturbed)
    assert set(runs.loc["qsgd", "drift"]) == {1.0} and not runs.loc["qsgd", "disturbed"].any()
    quick = fabricate.sweep(tmp_path / "2026-11-21" / "quick", [fabricate.config("none", 16)])
    measure(quick, best=1e-4)
    both = reports.load(disturbed, quick).runs
    assert both["drift"].min() == 1.0 and both["disturbed"].sum() == 3


@pytest.mark.parametrize(
    "found", [None, "slow", [], {}, {"slow_s": "1", "by_host": {"node7": []}, "cores_of_others": 7}]
)
def test_nothing_is_said_of_runs_without_a_yardstick(found: Any, disturbed: Path) -> None:
    for path in (disturbed / run_directory.RUNS).glob("compressor=svd*/result.json"):
        files.write_json(path, {**json.loads(path.read_text()), "yardstick": found})
    runs = read(disturbed).loc["svd"]
    assert runs[["disturbed", "disturbance", "drift", "cores_of_others"]].isna().all(axis=None)


@pytest.mark.thorough
def test_a_raced_run_has_the_interval_and_the_yardstick_of_its_race(disturbed: Path) -> None:
    directory = race(disturbed)
    ratios = files.read_json(directory / run_directory.RATIOS) or {}
    heat = ratios["heats"][0]
    heat["yardstick"] = fabricate.yardstick(slow=1.05, best=0.9e-3)
    for figures in heat["runs"].values():
        figures |= {"throughput_low": 0.98 / figures["step_s"], "throughput_high": 1.03 / figures["step_s"]}
    files.write_json(directory / run_directory.RATIOS, ratios)
    runs = read(disturbed)
    raced = runs.xs(2, level="workers")
    assert list(raced["drift"]) == [1.05] * 3 and not raced["disturbed"].any()
    assert runs.loc[("qsgd", 4), "drift"] == pytest.approx(1 / 0.9) and runs.loc[("qsgd", 4), "disturbed"], (
        "by the race"
    )
    rate = raced["iterations_per_second"]
    assert list(raced["throughput_low"] / rate) == pytest.approx([0.98] * 3)
    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    texts = {row[0].text: row[1].text for row in tables["throughput"].rows}
    assert texts == {"none": "100 ± 2", "qsgd": "80.0 ± 2.0", "svd": "50.0 ± 1.2"}
    assert "± is half the 95 % interval over the rounds of its race" in tables["throughput"].spread

    heat["yardstick"] = fabricate.yardstick(others=0.24)
    files.write_json(directory / run_directory.RATIOS, ratios)
    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    marks = {name: [row[1].text[-1] for row in tables[name].rows] for name in ("throughput", "speedup", "race")}
    assert marks["throughput"] == marks["speedup"] == ["△"] * 3 and marks["race"] == ["1", "△", "△"]
    (said,) = (note for note in tables["race"].notes if note.startswith("other processes took up to 24 % of the cores"))
    assert said.endswith("on a quiet machine, these ratios would be different")

    heat["yardstick"] = fabricate.yardstick(slow=1.2)
    files.write_json(directory / run_directory.RATIOS, ratios)
    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    marks = {name: [row[1].text[-1] for row in tables[name].rows] for name in ("throughput", "speedup", "race")}
    assert marks["throughput"] == ["△"] * 3 and "△" not in [*marks["speedup"], *marks["race"]], "all are slowed equally"
    assert not any("these ratios would be different" in note for note in tables["race"].notes)


def judge_race(sweep: Path, **yardstick: Any) -> None:
    """Race the runs with 2 workers, while others disturbed the heat or not."""
    directory = sweep / run_directory.RACES / "workers=2-0123abcd"
    ratios = files.read_json((directory if directory.exists() else race(sweep)) / run_directory.RATIOS) or {}
    for heat in ratios["heats"]:
        heat["yardstick"] = fabricate.yardstick(**yardstick)
    files.write_json(directory / run_directory.RATIOS, ratios)


@pytest.mark.parametrize("others", [0.0, 0.24])
def test_each_time_has_the_mark_of_the_reading_it_was_taken_with(
    disturbed: Path, others: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """svd was disturbed in its training, and all runs with 2 workers in their race, or none."""
    judge_race(disturbed, others=others)
    is_taken = others > 0
    runs = read(disturbed).xs(2, level="workers")
    assert list(runs["disturbed"]) == [is_taken] * 3 and list(runs["cores_of_others"]) == [others] * 3
    assert runs["training_disturbed"].to_dict() == {"none": False, "qsgd": False, "svd": True}
    assert runs.loc["svd", "training_disturbance"] == SLOWER and runs["training_disturbance"].notna().sum() == 1
    alone = read(disturbed).xs(4, level="workers")
    assert (alone["training_disturbed"] == alone["disturbed"]).all()

    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    marked = {
        name: {row[0].text: "△" in row[1].text for row in table.rows}
        for name, table in tables.items()
        if name in ("throughput", "throughput_samples", "time", "accuracy")
    }
    of_race, of_training = (
        dict.fromkeys(("none", "qsgd", "svd"), is_taken),
        {"none": False, "qsgd": False, "svd": True},
    )
    assert marked["throughput"] == marked["throughput_samples"] == of_race
    assert marked["time"] == of_training and not any(marked["accuracy"].values())
    step = {tuple(cell.text for cell in row[:2]): row[-1].text for row in tables["phases"].rows}
    assert {name: "△" in step[name, "2"] for name in of_race} == of_race
    for row in tables["runs"].rows:
        texts = dict(zip((f"{column.name} {column.shown}" for column in tables["runs"].columns), row, strict=True))
        (name, workers), is_two = (cell.text for cell in row[:2]), row[1].text == "2"
        assert "△" not in name + workers
        assert ("△" in texts["throughput it/s"].text) == (of_race[name] if is_two else name == "svd")
        assert ("△" in texts["training s"].text) == (name == "svd")

    (run,) = (disturbed / run_directory.RUNS).glob("compressor=svd,workers=2*")
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"  disturbed in its training: {SLOWER}\n" in shown
    assert ("  disturbed in its race: other processes took 24 % of its cores\n" in shown) == is_taken
    assert main(["show", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["disturbance"] is not None) == is_taken and told["training_disturbance"] == SLOWER


@pytest.mark.parametrize(("baseline", "is_marked"), [("none", False), ("svd", True)])
def test_reports_show_and_remeasure_agree_on_races_of_several_heats(
    disturbed: Path, baseline: str, is_marked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second heat was disturbed: its times count as those of the first, unless it has a baseline of its own; its
    ratios are its own."""
    directory = race(disturbed, 2, {"none": 1.0, "qsgd": 1.0}, {"none": 2.0, "svd": 2.0})
    ratios = files.read_json(directory / run_directory.RATIOS) or {}
    first, second = ratios["heats"]
    first["yardstick"], second["yardstick"] = fabricate.yardstick(), fabricate.yardstick(others=0.24)
    second["baseline"] = next(name for name in second["runs"] if f"compressor={baseline}," in name)
    files.write_json(directory / run_directory.RATIOS, ratios)
    runs = read(disturbed).xs(2, level="workers")
    assert runs["disturbed"].to_dict() == {"none": False, "qsgd": False, "svd": is_marked}
    (run,) = (disturbed / run_directory.RUNS).glob("compressor=svd,workers=2*")
    assert main(["show", str(run)]) == 0
    assert ("disturbed in its race" in capsys.readouterr().out) == is_marked
    judged = SweepYardsticks.read(disturbed)
    assert judged.explain_race(directory.name) == "other processes took 24 % of its cores"
    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    ratios = {row[0].text: row[1].text[-1] == "△" for row in tables["race"].rows if row[0].text != baseline}
    assert ratios == {name: name == "svd" for name in ratios}, "none raced in the first heat, too"


def test_a_quotient_has_the_marks_of_both_runs(disturbed: Path) -> None:
    """Also where a condition leaves the other run out of the table."""
    measure(disturbed, "compressor=none,workers=2*", others=0.3)
    tables = {table.name: table for table in read_report([disturbed], disturbed).tables}
    marks = {row[0].text: row[1].text[-1] == "△" for row in tables["speedup"].rows}
    assert marks == {"none": True, "qsgd": True, "svd": True}
    assert main([str(disturbed), "--value", "speedup", "--rows", "workers", "--where", "compressor=qsgd"]) == 0
    (found,) = (disturbed / "tables").glob("speedup_by_workers*.md")
    lines = {line.split("|")[1].strip(): line for line in found.read_text().splitlines() if line.startswith("| ")}
    assert "△" in lines["2"] and "△" not in lines["4"]


def test_they_are_marked_in_every_table_of_times_on_the_page_and_in_pictures(disturbed: Path) -> None:
    built = build_report(disturbed, pictures=())
    for table in built.tables:
        if table.name in ("accuracy", "loss", "payload", "sent", "compression_ratio"):
            assert "△" not in formats.to_markdown(table).decode()
        if table.name not in ("throughput", "speedup", "efficiency", "time", "phases", "runs"):
            continue
        for row in table.rows:
            texts = [cell.text for cell in row]
            assert any("△" in text for text in texts) == (texts[0] == "svd"), (table.name, texts)
        assert any(note.startswith("△: disturbed by other programs: ") for note in table.notes)
        assert r"\textsuperscript{$\triangle$}" in formats.to_latex(table).decode()
    page = built.page.read_text()
    assert SLOWER in page and '"disturbance"' in page
    found = layout.lay_out_panels(built.grid, built.grid.runs, ["workers"])
    assert "disturbed" in found.find_unfair() and found.explain_unfair("disturbed") == "disturbed by other programs"


def test_the_command_says_the_reason(disturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = (disturbed / run_directory.RUNS).glob("compressor=svd,workers=2*")
    assert main(["show", str(run)]) == 0
    assert f"  disturbed: {SLOWER}\n" in capsys.readouterr().out
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disturbance"] == SLOWER
    (run,) = (disturbed / run_directory.RUNS).glob("compressor=none,workers=2*")
    assert main(["show", str(run)]) == 0 and "  disturbed: " not in capsys.readouterr().out


@pytest.fixture
def seeds(tmp_path: Path) -> Iterator[Path]:
    """Of four seeds, svd was disturbed in two."""
    grid = [fabricate.config(name, seed=seed) for name in ("none", "svd") for seed in range(4)]
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "seeds", grid)
    measure(sweep)
    for run in run_directory.runs_of(sweep):
        text = run.path(run_directory.CONFIG).read_text()
        if "name: svd\n" in text and ("seed: 1\n" in text or "seed: 3\n" in text):
            measure(sweep, run.name, others=0.24)
    yield sweep


def test_they_are_neither_the_highest_nor_tested(seeds: Path) -> None:
    runs = reports.load(seeds).runs
    runs.loc[runs["disturbed"], "iterations_per_second"] *= 1000
    text = write_headline(lay_out_runs(runs))
    assert (
        "(none, 2 workers, mean ± standard deviation, n=4); 2 runs (2 disturbed by other programs) do not count."
        in text
    )
    tables = {table.name: table for table in read_report([seeds], seeds).tables}
    records = {name: {row["compressor"]: row for row in tables[name].records} for name in ("throughput", "accuracy")}
    assert (records["throughput"]["svd"]["n"], records["throughput"]["svd"]["pairs"]) == (4, 2)
    assert records["accuracy"]["svd"]["pairs"] == 4
    said = "marked times are not tested: 2 runs (2 disturbed by other programs)"
    assert said in tables["throughput"].notes and said in tables["time"].notes and said not in tables["accuracy"].notes
    runs["disturbed"] = True
    assert "No highest throughput is named: the times of 8 runs (8 disturbed" in write_headline(lay_out_runs(runs))


def test_comparisons_of_sweeps_do_not_judge_them(seeds: Path) -> None:
    runs = reports.load(seeds).runs
    found = compare(runs, runs.assign(disturbed=True))
    assert {change.verdict for change in found.changes[THROUGHPUT]} == {DISTURBED}
    assert any(remark.startswith("throughput is not tested of 10 runs (10 disturbed") for remark in found.remarks)
