"""`python -m reports A B` and `--baseline A`: sweeps together, and what has changed beyond noise."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import reports
from gradsweep import files, run_directory
from reports.__main__ import main
from reports.analysis.compare import FEW, NEITHER, NEW, SAME, UNKNOWN, Comparison, compare
from reports.analysis.measures import ACCURACY, THROUGHPUT
from tests.reports import fabricate

SEEDS = 5
Edit = Callable[[dict[str, Any], int], None]
SWEPT = {"swept": ["compressor", "workers", "seed"]}


def grid(*compressors: str, seeds: int = SEEDS, **changes: Any) -> list[dict[str, Any]]:
    return [fabricate.config(name, 2, seed=seed, **changes) for name in compressors for seed in range(seeds)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three compressors with five seeds. Read only."""
    return fabricate.sweep(tmp_path_factory.mktemp("earlier") / "a", grid("none", "qsgd", "svd"), **SWEPT)


@pytest.fixture
def baseline(earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it below the working directory."""
    shutil.copytree(earlier, tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    return Path("a")


@pytest.fixture
def later(baseline: Path) -> Path:
    shutil.copytree(baseline, "b")
    return Path("b")


def edit(sweep: Path, compressor: str, change: Edit) -> None:
    """Change the results of all runs of a compressor, which are told their seed."""
    for run in run_directory.runs_of(sweep):
        if f"compressor={compressor}," in run.name:
            seed = re.search(r"^seed: (\d+)$", run.path(run_directory.CONFIG).read_text(), re.MULTILINE)
            assert seed
            result = run.result() or {}
            change(result, int(seed[1]))
            files.write_json(run.path(run_directory.RESULT), result)


def scaled(factor: float) -> Edit:
    def change(result: dict[str, Any], seed: int) -> None:
        result["iterations_per_second"] *= factor + 0.001 * seed

    return change


def shifted(by: float) -> Edit:
    def change(result: dict[str, Any], seed: int) -> None:
        result["accuracy"] += by + 0.0001 * seed

    return change


def compared(before: Path, after: Path, *ignored: str) -> Comparison:
    return compare(reports.load(before).runs, reports.load(after).runs, ignored)


def verdicts(found: Comparison) -> dict[str, dict[str, str]]:
    return {
        measure.name: {change.key[0]: change.verdict for change in changes}
        for measure, changes in found.changes.items()
    }


def test_what_changed_is_told_from_noise(baseline: Path, later: Path) -> None:
    edit(later, "qsgd", scaled(1.1))
    edit(later, "svd", scaled(0.9))
    edit(later, "svd", shifted(-0.01))
    edit(later, "none", shifted(0.01))
    found = compared(baseline, later)
    assert verdicts(found) == {
        "throughput": {"none": SAME, "qsgd": "faster", "svd": "slower"},
        "accuracy": {"none": "better", "qsgd": SAME, "svd": "worse"},
    }
    assert found.sentences == [
        "Throughput, 3 cells: 1 faster, 1 slower and 1 no difference beyond noise.",
        "Test accuracy after the last epoch, 3 cells: 1 better, 1 worse and 1 no difference beyond noise.",
    ]
    assert [table.name for table in found.tables] == ["compared_throughput", "compared_accuracy"]


def test_every_number_is_scipys_and_corrected_for_all_tests(baseline: Path, later: Path) -> None:
    edit(later, "qsgd", scaled(1.1))
    edit(later, "none", shifted(0.0003))
    found = compared(baseline, later)
    before, after = (reports.load(sweep).runs for sweep in (baseline, later))
    values = [
        runs[runs["compressor"] == "qsgd"].sort_values("seed")["iterations_per_second"] for runs in (before, after)
    ]
    expected = stats.ttest_1samp(np.log(values[1].to_numpy() / values[0].to_numpy()), 0)
    change = next(change for change in found.changes[THROUGHPUT] if change.key[0] == "qsgd")
    assert change.difference and change.difference.p == pytest.approx(expected.pvalue)
    assert change.difference.p_holm == pytest.approx(min(1, 2 * expected.pvalue)), "of two tests the smaller"
    assert change.ratio == pytest.approx(values[1].mean() / values[0].mean())
    assert change.before.n == change.after.n == SEEDS and change.before.mean == pytest.approx(values[0].mean())
    assert "Holm-corrected for 2 tests" in " ".join(found.remarks)


def test_other_seeds_are_compared_without_pairs(baseline: Path) -> None:
    configs = [fabricate.config("none", 2, seed=seed) for seed in range(100, 104)]
    later = fabricate.sweep(Path("b"), configs)
    edit(later, "none", scaled(2.0))
    found = compared(baseline, later)
    before, after = (reports.load(sweep).runs for sweep in (baseline, later))
    values = [runs[runs["compressor"] == "none"]["iterations_per_second"] for runs in (before, after)]
    (change,) = found.changes[THROUGHPUT]
    expected = stats.ttest_ind(values[1].to_numpy(), values[0].to_numpy(), equal_var=False)
    assert change.difference and change.difference.p == pytest.approx(expected.pvalue)
    assert change.verdict == "faster" and "Welch" in found.remarks[0]
    assert "2 cells of the baseline alone" in found.remarks


def test_one_seed_knows_no_noise(baseline: Path) -> None:
    later = fabricate.sweep(Path("b"), grid("none", seeds=1))
    edit(later, "none", scaled(3.0))
    found = compared(baseline, later)
    (change,) = found.changes[THROUGHPUT]
    assert change.verdict == UNKNOWN and change.ratio == pytest.approx(3, abs=0.1)
    row = [cell.text for cell in found.tables[0].rows[0]]
    assert row[3].endswith("(n=1)") and row[5:] == ["", "", "", "one seed: no noise known"]


@pytest.mark.parametrize(("rate", "verdict"), [(99.0, SAME), (90.0, "slower"), (110.0, "faster"), (None, UNKNOWN)])
def test_a_race_is_one_measurement_for_all_seeds(baseline: Path, later: Path, rate: float | None, verdict: str) -> None:
    for sweep, mean in ((baseline, 100.0), (later, rate or 90.0)):
        ends = {"throughput_low": mean - 2, "throughput_high": mean + 2} if rate else {}
        names = [run.name for run in run_directory.runs_of(sweep) if "compressor=none," in run.name]
        figures = {"step_s": 1 / mean, "ratio": 1.0, "blocks": 40, "timed_steps": 160, **ends}
        race = sweep / run_directory.RACES / "workers=2-0123abcd"
        race.mkdir(parents=True)
        files.write_json(race / run_directory.RACE_PLAN, {"racers": {names[0]: names}})
        heat = {"baseline": names[0], "runs": {names[0]: figures}, "pairs": []}
        files.write_json(
            race / run_directory.RATIOS, {"format": 1, "finished": True, "heats": [heat], "tuned": {"overlap": True}}
        )
    found = compared(baseline, later)
    assert any(remark.startswith("baseline none") for remark in found.remarks), "what it was allowed"
    (change,) = (change for change in found.changes[THROUGHPUT] if change.key[0] == "none")
    assert (change.before.n, change.after.n, change.verdict) == (1, 1, verdict)


def test_throughputs_of_few_steps_are_told_but_not_judged(baseline: Path, later: Path) -> None:
    edit(later, "qsgd", scaled(1.1))
    edit(later, "svd", scaled(0.5))
    edit(later, "svd", lambda result, seed: result.update(timed_steps=12))
    found = compared(baseline, later)
    assert verdicts(found)["throughput"] == {"none": SAME, "qsgd": "faster", "svd": FEW}
    assert verdicts(found)["accuracy"]["svd"] == SAME
    (change,) = (change for change in found.changes[THROUGHPUT] if change.key[0] == "svd")
    assert change.after.n == SEEDS and change.ratio == pytest.approx(0.5, abs=0.01)
    table = found.tables[0]
    (row,) = (row for row in table.rows if row[0].text == "svd")
    assert [cell.text for cell in row][5:] == ["", "", "", FEW] and "‖ (n=" not in row[2].text
    assert row[3].text.endswith("‖") and f"of 12 timed steps ({SEEDS} runs)" in " ".join(table.notes)
    assert "1 too few timed steps" in found.sentences[0]
    assert main(["b", "--baseline", "a", "--quiet", "--no-plots", "--fail-on", "slower"]) == 0, "it is not slower"


def test_equal_values_are_no_difference_and_an_equal_shift_is_one(baseline: Path, later: Path) -> None:
    """Without any spread there is nothing to test."""
    edit(later, "qsgd", lambda result, seed: result.update(accuracy=result["accuracy"] - 0.01))
    assert set(verdicts(compared(baseline, later))["throughput"].values()) == {SAME}
    assert verdicts(compared(baseline, later))["accuracy"] == {"none": SAME, "qsgd": "worse", "svd": SAME}


def test_runs_that_are_not_done(baseline: Path) -> None:
    later = fabricate.sweep(Path("b"), grid("svd"))
    for config in grid("none"):
        fabricate.run(later, config, run_directory.FAILED, "boom")
    for number, config in enumerate(grid("qsgd")):
        fabricate.run(later, config, run_directory.FAILED if number == 0 else run_directory.DONE)
    found = compared(baseline, later)
    assert verdicts(found)["throughput"] == {"none": "failed", "qsgd": SAME, "svd": SAME}
    assert verdicts(compared(later, baseline))["throughput"]["none"] == NEW
    assert verdicts(compared(later, later))["throughput"]["none"] == NEITHER
    assert [change.after.n for change in found.changes[ACCURACY]] == [0, SEEDS - 1, SEEDS]


def test_cells_are_equal_by_their_configs_not_by_their_signatures(baseline: Path) -> None:
    """Code that has changed knows one more key, and every signature is another one."""
    configs = [{**config, "brand_new": 1} for config in grid("none", "qsgd")]
    later = fabricate.sweep(Path("b"), configs)
    found = compared(baseline, later)
    signatures = [set(reports.load(sweep).runs["signature"]) for sweep in (baseline, later)]
    assert not signatures[0] & signatures[1]
    assert {place for place in verdicts(found)["accuracy"]} == {"none", "qsgd"}
    assert any(re.match("not compared, as only one side has them: .*brand_new", said) for said in found.remarks)


def test_a_key_that_only_one_side_has_does_not_mix_what_it_tells_apart(baseline: Path) -> None:
    configs = [{**config, "brand_new": new} for config in grid("none") for new in (1, 2)]
    later = fabricate.sweep(Path("b"), [*configs, *grid("svd")])
    found = compared(baseline, later)
    assert list(verdicts(found)["accuracy"]) == ["svd"]
    assert "1 cell of several configs that differ in a key which is not compared" in found.remarks


def test_keys_may_be_left_out_of_what_is_equal(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate.sweep(Path("b"), grid("none", optimizer__lr=0.2))
    assert main(["b", "--baseline", "a", "--no-plots"]) == 2
    line = r"--baseline: no cell .*: optimizer.lr is 0.1 there and 0.2 in the others; --ignore optimizer.lr .*"
    assert re.fullmatch(f"reports: {line}\n", capsys.readouterr().err)
    assert main(["b", "--baseline", "a", "--no-plots", "--ignore", "optimizer.lr", "--quiet"]) == 0
    assert main(["b", "--baseline", "a", "--ignore", "optimiser.lr"]) == 2
    assert "--ignore optimiser.lr: no config has this key" in capsys.readouterr().err


def test_the_command_prints_writes_and_fails_when_told(
    baseline: Path, later: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(later, "svd", scaled(0.5))
    before = {path: path.stat().st_mtime_ns for sweep in (baseline, later) for path in sweep.rglob("*")}
    assert main(["b", "--baseline", "a", "--no-plots"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Throughput, 3 cells: 0 faster, 1 slower and 2 no difference beyond noise."
    assert re.search(r"^svd .* 0\.50\d .*slower *$", out, re.MULTILINE)
    page = Path(out.splitlines()[-1])
    assert page.parent.parent == Path("output/compared") and page.exists()
    with (page.parent / "tables/compared_throughput.csv").open() as file:
        rows = {row["compressor"]: row for row in csv.DictReader(file)}
    assert rows["svd"]["verdict"] == "slower" and float(rows["svd"]["ratio"]) == pytest.approx(0.5, abs=0.01)
    assert int(rows["svd"]["baseline_n"]) == SEEDS and float(rows["svd"]["p_holm"]) < 0.05
    assert {path: path.stat().st_mtime_ns for path in before} == before, "the sweeps stay as they are"
    arguments = ["b", "--baseline", "a", "--no-plots", "--quiet", "--fail-on"]
    assert main([*arguments, "faster,worse,failed"]) == 0 and main([*arguments, "slower,worse"]) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["a", "--baseline", "a"], "--baseline a: there is nothing else; valid is one of several sweeps"),
        (["a", "b", "--fail-on", "slower"], "--fail-on: it is about --baseline PATH, which is not given"),
        (["b", "--baseline", "a", "--fail-on", "slow"], "--fail-on slow: valid is one or more of faster, slower, .*"),
        (["b", "--baseline", "none"], "none: no runs here; .*"),
        (["a", "b", "--into", "a"], "--into a: it is in a sweep; valid is a directory that belongs to none"),
        (["a", "b", "--into", "a/runs/new"], "--into a/runs/new: it is in a sweep; .*"),
        (["a", "--into", "x"], "--into x: it is for several sweeps, and this is one, whose report is in it"),
        (["a", "--interval", "2"], "--interval: it is about --follow, which is not given"),
        (["a", "b", "--into", "x", "--rows", "memory"], "--into: it is about a report; valid is without --rows, .*"),
        (["b", "--baseline", "a", "--value", "loss"], "--baseline: it is about a report; valid is without --rows, .*"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: list[str], line: str, baseline: Path, later: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--no-plots"]) == 2
    assert re.fullmatch(f"reports: {line}\n", capsys.readouterr().err)
    assert not Path("x").exists()


def test_plots_of_a_table_of_ones_own_are_refused(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a", "--rows", "memory", "--plots", "svg"]) == 2
    assert capsys.readouterr().err.startswith("reports: --plots: it is about a report; valid is without --rows")


@pytest.mark.thorough
def test_several_sweeps_make_one_report(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs with one signature are one; each sweep keeps a report of its own."""
    fabricate.sweep(Path("b"), [*grid("none", seeds=2), *grid("none", optimizer__lr=0.2)], **SWEPT)
    assert main(["a", "b", "--no-plots"]) == 0
    out = capsys.readouterr().out.splitlines()
    pages = [line for line in out if line.endswith("report.html")]
    assert pages[:2] == ["a/report.html", "b/report.html"] and pages[2].startswith("output/compared/")
    together = pd.read_csv(Path(pages[2]).parent / "summary.csv")
    each = [pd.read_csv(Path(name) / "summary.csv") for name in "ab"]
    assert len(together) == len(each[0]) + len(each[1]) - 2 == together["signature"].nunique()
    assert set(together["optimizer.lr"]) == {0.1, 0.2}
    assert sum("the same config as" in line for line in out) == 2
    assert main(["a", "b", "--no-plots", "--quiet", "--into", "x/y"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "x/y/report.html"
    again = pd.read_csv("x/y/summary.csv")
    assert all((Path("x/y") / place / run_directory.CONFIG).is_file() for place in again["directory"])


def test_many_long_names_are_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = [fabricate.sweep(Path(f"{number}-{'n' * 90}"), [fabricate.config()]) for number in range(4)]
    assert main([*map(str, places), "--no-plots", "--quiet"]) == 0
    (made,) = Path("output/compared").iterdir()
    assert len(made.name) < 150 and "+3-more-" in made.name


def test_runs_of_an_earlier_version_are_compared_with_those_without_a_network(tmp_path: Path) -> None:
    before = fabricate.sweep(tmp_path / "a", grid("none"))
    networks = [{"name": "none"}, {"name": "real"}]
    after = fabricate.sweep(tmp_path / "b", [{**one, "network": name} for one in grid("none") for name in networks])
    for pair in ((before, after), (after, before)):
        found = compared(*pair)
        (change,) = found.changes[THROUGHPUT]
        assert change.before.n == change.after.n == SEEDS
