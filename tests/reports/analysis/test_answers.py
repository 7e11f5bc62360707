"""The sentences that say which compressor was the fastest in each race."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsweep import files, run_directory
from reports.analysis.answers import MOST, write_answers
from reports.analysis.grid import lay_out_runs
from reports.reading.report import Report
from tests.reports import fabricate
from tests.reports.tables.test_race_table import STEP_S, race


def answer(sweep: Path) -> list[str]:
    return write_answers(lay_out_runs(Report([sweep]).merge().runs))


def test_without_a_race_there_is_no_answer(tmp_path: Path) -> None:
    assert answer(fabricate.nine(tmp_path / "sweep")) == []


def test_places_where_all_are_slower_share_a_sentence(tmp_path: Path) -> None:
    sweep = fabricate.nine(tmp_path / "sweep")
    race(sweep)
    race(sweep, 4)
    assert answer(sweep) == ["2 and 4 workers: all other runs are certainly slower than none."]


def test_the_fastest_is_named_with_its_interval(tmp_path: Path) -> None:
    """An interval that has 1 in it is no lead."""
    sweep = fabricate.nine(tmp_path / "sweep")
    for workers, low in ((2, 1.9), (4, 0.9)):
        path = race(sweep, workers) / run_directory.RATIOS
        ratios = files.read_json(path) or {}
        for name, figure in ratios["heats"][0]["runs"].items():
            if "qsgd" in name:
                figure.update(ratio=2, ratio_low=low, ratio_high=2.1)
        files.write_json(path, ratios)
    runs = Report([sweep]).runs
    of = {name: runs.accuracy[(runs.compressor == name) & (runs.workers == 2)].mean() for name in ("qsgd", "none")}
    accuracies = f"an accuracy of {100 * of['qsgd']:.2f} % instead of {100 * of['none']:.2f} %"
    assert answer(sweep) == [
        f"2 workers: qsgd is 2.00 times as fast as none (95 % interval 1.90 to 2.10), with {accuracies}.",
        "4 workers: no run is certainly faster than none.",
    ]


def test_what_costs_nothing_is_not_named(tmp_path: Path) -> None:
    configs = [fabricate.config(name, optimizer__lr=lr) for lr in (0.1, 0.2) for name in STEP_S]
    sweep = fabricate.sweep(tmp_path / "sweep", configs, swept=["compressor", "optimizer.lr"])
    race(sweep)
    assert answer(sweep) == ["2 workers: all other runs are certainly slower than none."]


def test_many_places_are_cut_short() -> None:
    rows = [
        {
            "sweep": "s",
            "label": label,
            "workers": 2,
            "model": f"m{number:02}",
            "race": number,
            "cell": 2 * number + turn,
            "raced_by": f"{number}-{label}",
            "race_baseline": f"{number}-none",
            "status": run_directory.DONE if number else run_directory.FAILED,
            "ratio_disturbed": number == 0,
            "ratio_cores_of_others": 0.2,
            "accuracy": 0.9 + turn / 100,
            **{f"throughput_ratio{end}": value for end, value in (("", 2.0), ("_low", 1.5), ("_high", 2.5))},
        }
        for number in range(MOST + 2)
        for turn, label in enumerate(("none", "qsgd"))
    ]
    grid = lay_out_runs(Report([]).merge().runs)
    many = type(grid)(pd.DataFrame(rows), ("model",), (), (), {}, {}, ())
    sentences = write_answers(many)
    assert sentences[0] == (
        "model=m00, 2 workers: qsgd is 2.00 times as fast as none (95 % interval 1.50 to 2.50, on disturbed cores)."
    )
    assert sentences[1].endswith("2.50), with an accuracy of 91.00 % instead of 90.00 %.")
    assert sentences[MOST:] == ["2 more places in the table of the race."]
