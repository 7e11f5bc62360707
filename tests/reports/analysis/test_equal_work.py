"""Forward and backward are equal work: where their times differ, the machine's did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import reports
from gradsweep import files, run_directory
from reports.analysis.grid import lay_out_runs
from reports.tables.pivot import Choice, pivot
from reports.tables.sweep_tables import build_tables
from tests.reports import fabricate
from tests.reports.tables.test_race_table import race

SAID = (
    "forward and backward, equal work, differ from those of none by 12 % (qsgd, 2 workers): differences of throughput "
    "below that are the machine's"
)
SEEDS = 3
Result = dict[str, Any]


def slow_down(factor: float, drift: float = 1.0, others: float = 0.0) -> Callable[[str, Result], None]:
    """Let forward and backward of qsgd take so much longer than those of none, and its yardstick, too."""

    def change(compressor: str, result: Result) -> None:
        slower = factor if compressor == "qsgd" else 1.0
        result["phases_s"] |= {"forward": 0.002 * slower, "backward": 0.004 * slower}
        measured = fabricate.yardstick(drift, others) if compressor == "qsgd" else fabricate.yardstick()
        result["yardstick"] = {**measured, "by_host": {"node7": 1e-3}}

    return change


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    grid = [fabricate.config(name, seed=seed) for name in ("none", "qsgd", "svd") for seed in range(SEEDS)]
    return fabricate.sweep(tmp_path / "s", grid)


def edit(sweep: Path, change: Callable[[str, Result], None], **config: Any) -> None:
    """Change the results of all runs, and keys of the config of those of qsgd."""
    for run in run_directory.runs_of(sweep):
        content = yaml.safe_load(run.path(run_directory.CONFIG).read_text())
        result = run.result() or {}
        change(content["compressor"]["name"], result)
        files.write_json(run.path(run_directory.RESULT), result)
        if content["compressor"]["name"] == "qsgd":
            for key, value in config.items():
                content[key] = {**content[key], **value} if isinstance(value, dict) else value
            files.write_text(run.path(run_directory.CONFIG), yaml.safe_dump(content))


def read_notes(sweep: Path) -> dict[str, list[str]]:
    tables = build_tables(lay_out_runs(reports.load(sweep).runs))
    return {table.name: [note for note in table.notes if note.startswith("forward and backward")] for table in tables}


def test_a_difference_is_told_with_every_comparison_of_times(sweep: Path) -> None:
    edit(sweep, slow_down(1.12))
    found = read_notes(sweep)
    assert {name for name, notes in found.items() if notes} == {
        "throughput",
        "throughput_samples",
        "speedup",
        "phases",
    } | ({"time"} & found.keys())
    assert found["throughput"] == [SAID]
    report = reports.load(sweep)
    assert SAID in pivot(report.runs, report.epochs, Choice(value="throughput")).notes
    assert SAID not in pivot(report.runs, report.epochs, Choice(value="accuracy")).notes


@pytest.mark.parametrize(
    ("factor", "drift", "is_told"),
    [
        (1.04, 1.0, False),
        (1.06, 1.0, True),
        (0.88, 1.0, True),
        (1.12, 1.08, False),  # which the yardstick explains
        (0.88, 1.08, True),  # the yardstick says the opposite
        (1.0, 1.09, False),
    ],
)
def test_what_the_yardstick_explains_is_not_told(factor: float, drift: float, is_told: bool, sweep: Path) -> None:
    edit(sweep, slow_down(factor, drift))
    assert bool(read_notes(sweep)["throughput"]) is is_told


def test_times_that_are_not_compared_are_not_controlled(sweep: Path) -> None:
    edit(sweep, slow_down(1.12, others=0.3))
    assert not read_notes(sweep)["throughput"], "disturbed runs are marked already"
    edit(sweep, slow_down(1.12))
    assert read_notes(sweep)["throughput"]
    race(sweep, 2)
    assert not read_notes(sweep)["throughput"], "those who took turns were slow alike"


@pytest.mark.parametrize("config", [{"exchange": {"overlap": True}}, {"model": {"depth": 16}}])
def test_other_work_is_not_compared(config: dict[str, Any], sweep: Path) -> None:
    edit(sweep, slow_down(1.12), **config)
    assert not read_notes(sweep)["throughput"]
