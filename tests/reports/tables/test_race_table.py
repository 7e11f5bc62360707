"""Tables and figures of races."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.collections import LineCollection

import reports
from gradsweep import csv_columns, files, run_directory
from reports.analysis.answers import write_answers
from reports.analysis.grid import lay_out_runs
from reports.analysis.remarks import explain_settings
from reports.analysis.table import ReportTable
from reports.building.sweep_report import read_report
from reports.page.cells import collect_cells
from reports.plots.sweep_plots import make_plots
from reports.reading.races import read_notes
from reports.tables.race_table import build_race_table
from reports.tables.sweep_tables import build_tables, build_unfinished_table, write_headline
from sweep.directory.run_state import write_state
from tests.reports import fabricate

STEP_S = {"none": 0.010, "qsgd": 0.0125, "svd": 0.02}


def figures(name: str, scale: float = 1.0, width: float = 0.02) -> dict[str, Any]:
    step_s = STEP_S[name] * scale
    ratio = STEP_S["none"] / STEP_S[name]
    margin = 0.0 if name == "none" else width
    phases = {phase: step_s / 8 for phase in csv_columns.PHASES}
    ends = {"ratio": ratio, "ratio_low": ratio - margin, "ratio_high": ratio + margin}
    return {"step_s": step_s, "phases_s": phases, **ends, "blocks": 40, "timed_steps": 160}


def race(sweep: Path, workers: int = 2, *heats: dict[str, float], **more: Any) -> Path:
    """The race of a fabricated sweep's runs with so many workers: by heat, compressors and a factor of their times."""
    runs = [run.name for run in run_directory.runs_of(sweep)]
    begins = {name: f"compressor={name},workers={workers}-" for name in STEP_S}
    named = {name: [run for run in runs if run.startswith(begin)] for name, begin in begins.items()}
    directory = sweep / run_directory.RACES / f"workers={workers}-0123abcd"
    directory.mkdir(parents=True)
    plan = {"racers": {served[0]: served for served in named.values()}, "without": more.pop("without", {})}
    files.write_json(directory / run_directory.RACE_PLAN, plan)
    found = []
    for heat in heats or ({"none": 1.0, "qsgd": 1.0, "svd": 1.0},):
        width = more.get("width", 0.02)
        named_figures = {named[name][0]: figures(name, scale, width) for name, scale in heat.items()}
        pair = {"runs": [named["qsgd"][0], named["svd"][0]], "ratio": 0.9, "low": 0.7, "high": 1.1}
        found.append({"baseline": named["none"][0], "runs": named_figures, "pairs": [pair]})
    left_out = {named[name][0]: why for name, why in more.get("left_out", {}).items()}
    also_tuned = {named[name][0]: setting for name, setting in more.get("also_tuned", {}).items()}
    settings = {key: more[key] for key in ("tuned", "untuned") if key in more} | {"also_tuned": also_tuned}
    files.write_json(
        directory / run_directory.RATIOS,
        {"format": 1, "finished": more.get("finished", True), "heats": found, "left_out": left_out, **settings},
    )
    return directory


def table(sweep: Path) -> ReportTable:
    found = build_race_table(lay_out_runs(reports.load(sweep).runs), read_notes([sweep]))
    assert found is not None
    return found


def texts(made: ReportTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in made.rows]


def test_throughput_and_phases_are_those_of_the_race(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    before = reports.load(sweep).runs.set_index(["compressor", "workers"])
    race(sweep)
    after = reports.load(sweep).runs.set_index(["compressor", "workers"])
    for name, step_s in STEP_S.items():
        row, was = after.loc[(name, 2)], before.loc[(name, 2)]
        assert row["iterations_per_second"] == pytest.approx(1 / step_s) and row["step_s"] == pytest.approx(step_s)
        assert row["encode_s"] == pytest.approx(step_s / 8) and row["race_blocks"] == 40
        assert row["trained_iterations_per_second"] == was["iterations_per_second"]
        batch = was["samples_per_second"] / was["iterations_per_second"]
        assert row["samples_per_second"] == pytest.approx(batch / step_s) and row["accuracy"] == was["accuracy"]
    assert after.loc[("none", 4)]["iterations_per_second"] == before.loc[("none", 4)]["iterations_per_second"]
    assert after["throughput_ratio"].notna().sum() == 3


def test_a_race_of_few_timed_steps_is_marked_as_a_training_would_be(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    path = race(sweep) / run_directory.RATIOS
    ratios = files.read_json(path) or {}
    steps = dict(zip(ratios["heats"][0]["runs"], (29, 30, None), strict=True))
    for name, figure in ratios["heats"][0]["runs"].items():
        figure["timed_steps"] = steps[name]
    files.write_json(path, ratios)
    runs = reports.load(sweep).runs.set_index(["compressor", "workers"])
    assert [runs.loc[(name, 2)]["few_steps"] for name in STEP_S] == [True, False, False]


def test_the_table_has_ratios_with_intervals(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep, 2)
    race(sweep, 4, width=0.3, left_out={"svd": "no memory for it beside none"})
    made = table(sweep)
    assert made.title == "Throughput in the race, times that of none"
    assert texts(made) == [
        ["none", "1", "1", "not raced"],
        ["qsgd", "0.800 [0.780, 0.820]", "0.800 [0.500, 1.10]≈", "not raced"],
        ["svd", "0.500 [0.480, 0.520]", "0.500 [0.200, 0.800]", "not raced"],
    ]
    alike = "cannot be told apart either: qsgd and svd with 2 workers; qsgd and svd with 4 workers"
    assert alike in made.remarks
    assert "left out of the race: svd with 4 workers (no memory for it beside none)" in made.remarks
    assert sorted({round(record["throughput_ratio"], 6) for record in made.records}) == [0.5, 0.8, 1.0]
    assert any(note.startswith("≈: cannot be told apart") for note in made.notes)


def test_a_report_begins_with_the_race(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    assert "race" not in [made.name for made in read_report([sweep], sweep).tables]
    race(sweep)
    assert read_report([sweep], sweep).tables[0].name == "race"


def test_times_of_two_heats_are_brought_together_by_their_baseline(tmp_path: Path) -> None:
    """In the second heat the machine was half as fast."""
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep, 2, {"none": 1.0, "qsgd": 1.0}, {"none": 2.0, "svd": 2.0})
    runs = reports.load(sweep).runs.set_index(["compressor", "workers"])
    assert [runs.loc[(name, 2)]["step_s"] for name in STEP_S] == pytest.approx(list(STEP_S.values()))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_baseline_that_left_the_heats_does_not_give_its_setting_to_the_next(tmp_path: Path, is_named: bool) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    directory = race(sweep, 2, {"svd": 1.0, "qsgd": 1.0}, tuned=TUNED)
    ratios = files.read_json(directory / run_directory.RATIOS) or {}
    racers = (files.read_json(directory / run_directory.RACE_PLAN) or {})["racers"]
    ratios["heats"][0]["baseline"] = next(iter(ratios["heats"][0]["runs"]))
    ratios |= {"tuned_run": next(iter(racers))} if is_named else {"racers": racers}
    files.write_json(directory / run_directory.RATIOS, ratios)
    runs = reports.load(sweep).runs
    assert runs["tuned_overlap"].isna().all() and runs["baseline_setting"].isna().all()


def test_times_of_heats_without_a_common_baseline_stay_as_they_are(tmp_path: Path) -> None:
    """The baseline has left the second heat, so that the first run left there is its baseline."""
    sweep = fabricate.nine(tmp_path / "sweep")
    directory = race(sweep, 2, {"none": 1.0, "qsgd": 1.0}, {"svd": 1.0})
    ratios = files.read_json(directory / run_directory.RATIOS) or {}
    ratios["heats"][1]["baseline"] = next(iter(ratios["heats"][1]["runs"]))
    files.write_json(directory / run_directory.RATIOS, ratios)
    runs = reports.load(sweep).runs.set_index(["compressor", "workers"])
    assert [runs.loc[(name, 2)]["step_s"] for name in STEP_S] == pytest.approx(list(STEP_S.values()))


def test_only_the_baseline_is_1(tmp_path: Path) -> None:
    """A run that is exactly as fast has an interval, if one without width; another seed of the baseline has none."""
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config(name) for name in STEP_S])
    path = race(sweep) / run_directory.RATIOS
    ratios = files.read_json(path) or {}
    for name, figure in ratios["heats"][0]["runs"].items():
        if "qsgd" in name:
            figure.update(ratio=1, ratio_low=1, ratio_high=1)
    files.write_json(path, ratios)
    made = table(sweep)
    assert texts(made) == [["none", "1"], ["qsgd", "1.00 [1.00, 1.00]≈"], ["svd", "0.500 [0.480, 0.520]"]]
    assert "cannot be told apart either: qsgd and svd" in made.remarks, "all have equally many workers"


def test_one_run_is_raced_for_all_seeds_and_counts_once(tmp_path: Path) -> None:
    configs = [fabricate.config(name, seed=seed) for seed in (0, 1, 2) for name in STEP_S]
    sweep = fabricate.sweep(tmp_path / "sweep", configs, swept=["compressor", "seed"])
    race(sweep)
    tables = {made.name: made for made in read_report([sweep], sweep).tables}
    assert texts(tables["throughput"]) == [["none", "100"], ["qsgd", "80.0"], ["svd", "50.0"]]
    assert all("±" in cell for _, cell in texts(tables["accuracy"]))
    headline = write_headline(lay_out_runs(reports.load(sweep).runs))
    assert "Highest throughput: 100 it/s (none, 2 workers, n=1)." in headline
    assert len(tables["race"].rows) == 3 and texts(tables["race"])[0] == ["none", "1"]


def test_a_run_that_is_raced_for_another_cell_is_in_both(tmp_path: Path) -> None:
    """Of two learning rates one races: a step costs the same."""
    configs = [fabricate.config(name, optimizer__lr=lr) for lr in (0.1, 0.2) for name in STEP_S]
    sweep = fabricate.sweep(tmp_path / "sweep", configs, swept=["compressor", "optimizer.lr"])
    race(sweep)
    tables = {made.name: made for made in read_report([sweep], sweep).tables}
    rows = [
        (name, lr, rate) for name, rate in (("none", "100"), ("qsgd", "80.0"), ("svd", "50.0")) for lr in ("0.1", "0.2")
    ]
    assert texts(tables["throughput"]) == [list(row) for row in rows]
    assert [row[2].text for row in tables["speedup"].rows] == ["1.00", "1.00", "0.800", "0.800", "0.500", "0.500"]


def test_a_race_that_was_ended_early_is_named(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep)
    assert not any("ended early" in remark for remark in table(sweep).remarks)
    race(sweep, 4, finished=False)
    assert "measured until it was ended early, or until now: workers=4-0123abcd" in table(sweep).remarks


def test_runs_that_only_raced_have_ratios_and_times(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for name in STEP_S:
        fabricate.run(sweep, fabricate.config(name), run_directory.PENDING)
    race(sweep)
    assert [row[1] for row in texts(table(sweep))] == ["1", "0.800 [0.780, 0.820]", "0.500 [0.480, 0.520]"]
    tables = {made.name: made for made in read_report([sweep], sweep).tables}
    assert texts(tables["throughput"]) == [["none", "100"], ["qsgd", "80.0"], ["svd", "50.0"]]
    assert [row[1].text for row in tables["speedup"].rows] == ["1.00", "0.800", "0.500"]
    assert "pending" in {cell.text for row in tables["accuracy"].rows for cell in row}
    grid = read_report([sweep], sweep).grid
    assert "Highest throughput: 100 it/s (none, 2 workers)" in write_headline(grid)
    assert len(build_unfinished_table(grid).rows) == 3
    for run in run_directory.runs_of(sweep)[1:]:
        write_state(run, reason=run_directory.ONLY_RACED)
    assert len(build_unfinished_table(read_report([sweep], sweep).grid).rows) == 1, "the others were not to be trained"


@pytest.fixture
def only_raced(tmp_path: Path) -> Path:
    """A sweep with race=only of 2 and 4 workers and two seeds."""
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for workers in (2, 4):
        for name in STEP_S:
            for seed in (0, 1):
                fabricate.run(sweep, fabricate.config(name, workers, seed=seed), run_directory.PENDING)
        path = race(sweep, workers) / run_directory.RATIOS
        ratios = files.read_json(path) or {}
        for figure in (figure for heat in ratios["heats"] for figure in heat["runs"].values()):
            figure |= {"throughput_low": 0.98 / figure["step_s"], "throughput_high": 1.03 / figure["step_s"]}
        traffic = {name: {"samples": 128 / workers} for heat in ratios["heats"] for name in heat["runs"]}
        files.write_json(path, {**ratios, "workers": workers, "traffic": traffic})
    return sweep


def test_runs_that_only_raced_have_samples_per_second_and_an_efficiency(only_raced: Path) -> None:
    runs = reports.load(only_raced).runs
    assert set(runs["status"]) == {run_directory.PENDING}
    assert runs["samples_per_second"].to_numpy() == pytest.approx(128 / runs["step_s"].to_numpy())
    assert runs["trained_iterations_per_second"].isna().all()
    tables = {made.name: made for made in read_report([only_raced], only_raced).tables}
    means = [(row["n"], row["mean"]) for row in tables["throughput_samples"].records]
    assert means == [(1, pytest.approx(128 / STEP_S[name])) for name in STEP_S for _ in range(2)]
    assert [row["mean"] for row in tables["efficiency"].records] == pytest.approx([1.0, 0.5] * 3)
    assert {row["mean"] for row in tables["phases"].records if row["measure"] == "step"} == set(STEP_S.values())
    rates = {cell.text for row in tables["runs"].rows for cell in row}
    assert {"100", "80.0", "50.0", "12,800"} <= rates, "the table of all runs has them, too"


def test_pictures_and_page_show_runs_that_only_raced(only_raced: Path) -> None:
    built = read_report([only_raced], only_raced)
    plots = {plot.name: plot for plot in make_plots(built.grid, built.report.epochs, built.report.profile)}
    assert {"race", "throughput", "efficiency", "breakdown"} <= set(plots)
    (axis,) = plots["throughput"].figure.axes
    lines = [part for found in axis.collections if isinstance(found, LineCollection) for part in found.get_segments()]
    assert {tuple(line[:, 1].round(6)) for line in lines} >= {(100, 100), (80, 80), (50, 50)}
    assert not [text.get_text() for text in axis.texts if "pending" in text.get_text()]
    assert "qsgd, 2 workers: 80" in plots["throughput"].alt and "seeds" not in plots["throughput"].alt
    (legend,) = plots["throughput"].figure.legends
    assert "the race's rounds" in legend.get_title().get_text()
    assert "qsgd, 4 workers: 50" in plots["efficiency"].alt
    cells = collect_cells(built.grid, built.report.epochs, built.report.profile)
    first = {cell["label"]: cell for cell in cells if cell["workers"] == "2"}["qsgd"]
    assert first["values"]["iterations_per_second"] == [80.0, 78.4, 82.4] and first["values"]["efficiency"] == [1.0]
    assert (first["done"], first["timed"], first["values"].get("accuracy")) == (0, 1, None)


def test_the_throughput_of_one_number_of_workers_is_drawn_of_runs_that_only_raced(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "sweep", [])
    for name in STEP_S:
        fabricate.run(sweep, fabricate.config(name), run_directory.PENDING)
    race(sweep)
    built = read_report([sweep], sweep)
    plots = {plot.name: plot for plot in make_plots(built.grid, built.report.epochs, built.report.profile)}
    for name, expected in (("throughput", [100, 80, 50]), ("breakdown", None)):
        (axis,) = plots[name].figure.axes
        said = [text.get_text() for text in axis.texts]
        assert len(said) == 3 and not any("pending" in text for text in said)
        if expected:
            assert [bar.get_width() for bar in axis.patches] == pytest.approx(expected)


def test_figures_of_an_earlier_attempt_are_not_read_by_a_newer_plan(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    directory = race(sweep)
    plan, ratios = (files.read_json(directory / name) for name in (run_directory.RACE_PLAN, run_directory.RATIOS))
    assert plan is not None and ratios is not None
    files.write_json(directory / run_directory.RATIOS, {**ratios, "racers": plan["racers"]})
    before = texts(table(sweep))
    names = list(plan["racers"])
    swapped = dict(zip(names, ([name] for name in reversed(names)), strict=True))
    files.write_json(directory / run_directory.RACE_PLAN, {"racers": swapped, "without": {names[0]: "failed"}})
    assert texts(table(sweep)) == before and not any("left out" in remark for remark in table(sweep).remarks)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_race_is_left_out(tmp_path: Path, kind: str) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep).rename(tmp_path / "elsewhere")
    where = sweep / run_directory.RACES / "workers=2-0123abcd"
    where.symlink_to(tmp_path / "elsewhere") if kind == "link" else where.write_text("")
    assert "race" not in [made.name for made in read_report([sweep], sweep).tables]
    where.unlink()
    where.parent.rmdir()
    where.parent.write_text("")
    assert "race" not in [made.name for made in read_report([sweep], sweep).tables]


@pytest.mark.parametrize("name", [run_directory.RACE_PLAN, run_directory.RATIOS])
@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"heats": 3, "racers": [1], "left_out": 5}', '{"heats": [7, {"runs": 1}]}', '{"format": 99}'],
)
def test_damaged_files_of_a_race_harm_nothing_else(tmp_path: Path, name: str, content: str) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    (race(sweep) / name).write_text(content)
    assert (
        len(read_report([sweep], sweep).report.runs) == 9
        and build_race_table(lay_out_runs(reports.load(sweep).runs), read_notes([sweep])) is None
    )


def test_figures_that_are_none_are_left_out(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    path = race(sweep) / run_directory.RATIOS
    ratios = files.read_json(path) or {}
    for name, figure in ratios["heats"][0]["runs"].items():
        if "svd" in name:
            figure["step_s"] = "fast"
    files.write_json(path, ratios)
    assert [row[0] for row in texts(table(sweep))] == ["none", "qsgd"]


def test_ratios_are_drawn_with_their_intervals(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep)
    built = read_report([sweep], sweep)
    plots = {plot.name: plot for plot in make_plots(built.grid, built.report.epochs, built.report.profile)}
    first, second, _ = plots["race"].figure.axes
    ends = sorted(tuple(line.get_xdata()) for line in first.lines if line.get_marker() == "|")
    assert ends == [pytest.approx(pair) for pair in [(0.48, 0.52), (0.78, 0.82), (1, 1)]]
    assert [text.get_text() for text in first.texts] == ["1.00", "0.800", "0.500"]
    assert {text.get_text() for text in second.texts} == {"not raced"}
    assert "qsgd, 2 workers: 0.800" in plots["race"].alt


TUNED = {"overlap": True, "part_mib": 4.0, "allreduce": "recursive_doubling", "tried": [{}, {}, {}]}
AS_CONFIGURED = {"overlap": False, "part_mib": 1.0, "allreduce": "ring", "why": "race.tune=false"}


def test_every_table_of_times_says_what_the_baseline_was_allowed(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep, 2, tuned=TUNED, also_tuned={"svd": {**TUNED, "part_mib": 1}})
    race(sweep, 4, untuned=AS_CONFIGURED)
    race(sweep, 8, untuned={"why": "exchange=gossip: it has one setting only {}"})
    expected = [
        "baseline none with 2 workers: tuned (overlap, parts of 4 MiB, recursive doubling; 3 settings tried)",
        "baseline none with 4 workers: as configured: no overlap, parts of 1 MiB, ring (race.tune=false)",
        "baseline none with 8 workers: as configured (exchange=gossip: it has one setting only {})",
        "tuned svd with 2 workers: overlap, parts of 1 MiB, recursive doubling",
    ]
    grid = lay_out_runs(reports.load(sweep).runs)
    made = {made.name: made for made in build_tables(grid)}
    for one in (made["throughput"], made["phases"], table(sweep)):
        assert [note for note in one.remarks if note.startswith(("baseline", "tuned"))] == expected, one.name
    assert not any(note.startswith("baseline") for note in made["accuracy"].remarks)
    rows = reports.load(sweep).runs.set_index(["compressor", "workers"])
    assert rows.loc[("none", 2), "tuned_overlap"] and rows.loc[("none", 2), "tuned_part_mib"] == 4
    assert rows.loc[("none", 2), "tuned_allreduce"] == "recursive_doubling"
    assert rows["tuned_overlap"].notna().sum() == 2


@pytest.mark.parametrize(
    "content",
    [None, 3, "x", [], {}, {"overlap": "x", "part_mib": [], "allreduce": 3, "tried": 5}, {"part_mib": 10**400}],
)
def test_damaged_settings_do_no_harm(tmp_path: Path, content: Any) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep, 2, tuned=content, untuned=content, also_tuned={"svd": content})
    assert texts(table(sweep)) and build_tables(lay_out_runs(reports.load(sweep).runs))
    assert reports.load(sweep).runs["tuned_overlap"].isna().all()


def test_settings_that_differ_are_told_apart_by_the_key_that_decides() -> None:
    row = {"sweep": "s", "workers": 2, "compressor": "none", "raced_by": None, "race_baseline": None, "race": None}
    row |= {"baseline_setting": None, "tuned_overlap": True, "tuned_part_mib": 0.5, "run": "r"}
    rows = [
        {**row, "network": "ethernet_1g", "seed": 0, "tuned_allreduce": "ring"},
        {**row, "network": "ethernet_1g", "seed": 1, "tuned_allreduce": "ring"},
        {**row, "network": "wan_100m", "seed": 0, "tuned_allreduce": "rabenseifner"},
    ]
    assert explain_settings(pd.DataFrame(rows).convert_dtypes()) == [
        "tuned none, network=ethernet_1g: overlap, parts of 0.5 MiB, ring",
        "tuned none, network=wan_100m: overlap, parts of 0.5 MiB, rabenseifner",
    ]


def test_a_report_of_several_sweeps_tells_their_races_apart(tmp_path: Path) -> None:
    """Sweeps with the same baseline, of which the report has one run, and with other baselines."""
    sweeps = [fabricate.nine(tmp_path / name) for name in ("a", "b")]
    for sweep, names in zip(sweeps, (("none", "qsgd"), ("none", "svd")), strict=True):
        race(sweep, 2, dict.fromkeys(names, 1.0))
    merged = lay_out_runs(reports.load(*sweeps).runs)
    found = build_race_table(merged, read_notes(sweeps))
    assert found is not None and found.title == "Throughput in the race, times that of none"
    assert all("certainly slower than none" in sentence for sentence in write_answers(merged))
    assert "baseline" not in [column.name for column in found.columns]

    path = sweeps[1] / run_directory.RACES / "workers=2-0123abcd" / run_directory.RATIOS
    ratios = files.read_json(path) or {}
    (heat,) = ratios["heats"]
    heat["baseline"] = next(name for name in heat["runs"] if "svd" in name)
    files.write_json(path, ratios)
    merged = lay_out_runs(reports.load(*sweeps).runs)
    found = build_race_table(merged, read_notes(sweeps))
    assert found is not None and found.title == "Throughput in the race, times that of the baseline"
    (place,) = (at for at, column in enumerate(found.columns) if column.name == "baseline")
    assert {row[place].text for row in found.rows} == {"none", "svd"}
