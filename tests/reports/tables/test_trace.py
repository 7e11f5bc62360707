"""Every number of every table of a sweep, traced to the CSVs that its runs left behind.

Nothing here uses the code that makes tables: files are read with csv and json, means are sums, intervals and
tests are asked of scipy one cell at a time, and Holm's correction is written out.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gradsweep import csv_columns, files, run_directory
from reports.building.sweep_report import build_report
from tests.reports import fabricate

COMPRESSORS, WORKERS, SEEDS = ("none", "qsgd", "svd"), (2, 4), (0, 1, 2, 3, 4)
ENDED = {  # not done, besides qsgd with 4 workers and seed 3, which is missing
    ("svd", 2, 1): run_directory.FAILED,
    ("svd", 2, 4): run_directory.DIVERGED,
    ("none", 4, 0): run_directory.FAILED,
    ("qsgd", 2, 2): run_directory.RUNNING,
    **{("svd", 4, seed): run_directory.FAILED for seed in (0, 1, 2, 3)},
}
TARGETS = ("0.5", "0.9", "0.985")
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = fabricate.sweep(tmp_path_factory.mktemp("trace") / "2026-11-20" / "trace", [], swept=["compressor", "seed"])
    draw = random.Random(4)
    for compressor, workers, seed in itertools.product(COMPRESSORS, WORKERS, SEEDS):
        if (compressor, workers, seed) == ("qsgd", 4, 3):
            continue
        config = fabricate.config(compressor, workers, seed=seed, epochs=12 if compressor == "svd" else 15)
        status = ENDED.get((compressor, workers, seed), run_directory.DONE)
        path = fabricate.run(sweep, config, status, name=f"{compressor}_{workers}_{seed}-00")
        if status == run_directory.DONE:
            measure_errors(path, draw)
    build_report(sweep, pictures=(), targets=[float(target) for target in TARGETS])
    return sweep


def measure_errors(path: Path, draw: random.Random) -> None:
    """Give every fourth step a compression error, and the result their mean, as a trainer does."""
    rows = rows_of(path / run_directory.STEPS)
    for row in rows[::4]:
        row["compression_error"] = repr(draw.uniform(0.1, 0.9))
    with (path / run_directory.STEPS).open("w", newline="") as file:
        writer = csv.DictWriter(file, csv_columns.STEP_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    result = json.loads((path / run_directory.RESULT).read_text())
    files.write_json(path / run_directory.RESULT, {**result, "compression_error": mean(rows, "compression_error")})


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def mean(rows: list[dict[str, str]], column: str) -> float:
    values = [float(row[column]) for row in rows if row[column]]
    return sum(values) / len(values)


class Run:
    """The CSVs of a run that is done."""

    def __init__(self, path: Path) -> None:
        self.steps, self.epochs = rows_of(path / run_directory.STEPS), rows_of(path / run_directory.EPOCHS)

    def mean(self, column: str) -> float:
        """After warm-up."""
        return mean(self.steps[10:], column)

    def last(self, column: str) -> float:
        return float(self.epochs[-1][column])

    def until(self, column: str, limit: float) -> float:
        rows = [row for row in self.epochs if float(row[column]) <= limit * (1 + 1e-12)]
        return float(rows[-1]["test_accuracy"]) if rows else math.nan

    def first(self, column: str, target: float) -> float:
        rows = [row for row in self.epochs if float(row["test_accuracy"]) >= target]
        return float(rows[0][column]) if rows else math.nan


@pytest.fixture(scope="module")
def runs(directory: Path) -> dict[Place, Run]:
    found = {}
    for compressor, workers, seed in itertools.product(COMPRESSORS, WORKERS, SEEDS):
        path = directory / "runs" / f"{compressor}_{workers}_{seed}-00"
        if path.exists() and json.loads((path / "state.json").read_text())["status"] == "done":
            found[compressor, workers, seed] = Run(path)
    return found


def speedup(runs: dict[Place, Run], place: Place) -> float:
    other = runs.get(("none", *place[1:]))
    return other.mean("step_s") / runs[place].mean("step_s") if other else math.nan


def efficiency(runs: dict[Place, Run], place: Place) -> float:
    """128 samples a step in both; half as many workers."""
    compressor, workers, seed = place
    other = runs.get((compressor, 2, seed))
    return other.mean("step_s") / runs[place].mean("step_s") * 2 / workers if other else math.nan


def limit(runs: dict[Place, Run], place: Place, column: str) -> float:
    """The largest value that all runs with as many workers have reached."""
    return min(run.last(column) for (_, workers, _), run in runs.items() if workers == place[1])


def at_equal(runs: dict[Place, Run], place: Place, column: str) -> float:
    return runs[place].until(column, limit(runs, place, column))


PHASES = ("data", "forward", "backward", "encode", "communicate", "decode", "update")
HIGHER: dict[str, Callable[[dict[Place, Run], Place], float]] = {
    "throughput": lambda runs, place: 1 / runs[place].mean("step_s"),
    "throughput_samples": lambda runs, place: 128 / runs[place].mean("step_s"),
    "speedup": speedup,
    "efficiency": efficiency,
    "accuracy": lambda runs, place: runs[place].last("test_accuracy"),
    "accuracy_best": lambda runs, place: max(float(row["test_accuracy"]) for row in runs[place].epochs),
    "accuracy_equal_epochs": functools.partial(at_equal, column="epoch"),
    "accuracy_equal_time": functools.partial(at_equal, column="time_s"),
    "accuracy_equal_bytes": functools.partial(at_equal, column="sent_bytes"),
    "compression_ratio": lambda runs, place: runs[place].mean("compression_ratio"),
    **{
        f"share_{phase}": lambda runs, place, phase=phase: runs[place].mean(f"{phase}_s") / runs[place].mean("step_s")
        for phase in PHASES
    },
    "share_other": lambda runs, place: (
        1 - sum(runs[place].mean(f"{phase}_s") for phase in PHASES) / runs[place].mean("step_s")
    ),
}
LOWER: dict[str, Callable[[dict[Place, Run], Place], float]] = {
    "time": lambda runs, place: runs[place].last("time_s"),
    "sent_total": lambda runs, place: runs[place].last("sent_bytes"),
    "payload": lambda runs, place: runs[place].mean("payload_bytes"),
    "sent": lambda runs, place: runs[place].mean("sent_bytes"),
    "compression_error": lambda runs, place: mean(runs[place].steps, "compression_error"),
    "step": lambda runs, place: runs[place].mean("step_s"),
    **{
        f"{kind}_to_{100 * float(target):g}": lambda runs, place, column=column, target=float(target): runs[
            place
        ].first(column, target)
        for target in TARGETS
        for kind, column in (("time", "time_s"), ("bytes", "sent_bytes"))
    },
}


def spread(values: list[float]) -> dict[str, float | None]:
    """What a record says of the values of a cell."""
    n = len(values)
    if n == 0:
        return dict.fromkeys(("mean", "std", "low", "high", "boot_low", "boot_high", "median"))
    found: dict[str, float | None] = {"mean": sum(values) / n, "median": statistics.median(values)}
    if n == 1:
        return {**found, **dict.fromkeys(("std", "low", "high", "boot_low", "boot_high"))}
    std = statistics.stdev(values)
    half = stats.t.ppf(0.975, n - 1) * std / math.sqrt(n)
    boot = stats.bootstrap(
        (values,), np.mean, n_resamples=1999, batch=100, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    middle = sum(values) / n
    interval = {"low": middle - half, "high": middle + half, "boot_low": boot.low, "boot_high": boot.high}
    return {**found, "std": std, **interval}


def holm(ps: dict[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    corrected, highest = {}, 0.0
    for rank, (place, p) in enumerate(sorted(ps.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(ps) - rank) * p))
        corrected[place] = highest
    return corrected


def same(found: str, expected: float | None) -> bool:
    if expected is None:
        return found == ""
    return found != "" and float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_every_number_of_every_table(directory: Path, runs: dict[Place, Run]) -> None:
    traced = 0
    files = sorted((directory / "tables").glob("*.csv"))
    assert {path.stem for path in files} == {*HIGHER, *LOWER, "phases", "runs"} - {
        "step",
        *(f"share_{phase}" for phase in (*PHASES, "other")),
    }
    for path in files:
        records = rows_of(path)
        if path.stem == "runs":
            continue
        for name in {record["measure"] for record in records}:
            cells = {
                (record["compressor"], int(record["workers"])): record
                for record in records
                if record["measure"] == name
            }
            assert set(cells) == set(itertools.product(COMPRESSORS, WORKERS))
            traced += trace(name, cells, runs, is_tested=path.stem != "phases")
    assert traced > 1700


def trace(name: str, cells: dict[tuple[str, int], dict[str, str]], runs: dict[Place, Run], is_tested: bool) -> int:
    """Check all cells of a measure; how many numbers that were."""
    number = HIGHER.get(name) or LOWER[name]
    values = {cell: {seed: number(runs, (*cell, seed)) for seed in SEEDS if (*cell, seed) in runs} for cell in cells}
    values = {cell: {seed: v for seed, v in found.items() if not math.isnan(v)} for cell, found in values.items()}
    tests: dict[tuple[str, int], float] = {}
    bounds: set[tuple[str, int]] = set()
    count = 0
    for cell, record in cells.items():
        found = list(values[cell].values())
        best = (max if name in HIGHER else min)(found, default=None)
        ended = [ENDED.get((*cell, seed)) for seed in SEEDS]
        assert int(record["n"]) == len(found)
        assert int(record["failed"]) == ended.count("failed") and int(record["diverged"]) == ended.count("diverged")
        assert int(record["missing"]) == (cell == ("qsgd", 4))
        others = sum((*cell, seed) in runs for seed in SEEDS) - len(found) + ended.count("running")
        assert sum(int(word.split()[0]) for word in record["other"].split("; ") if word) == others
        assert int(record["oversubscribed"]) == (cell[1] > 2) * (5 - (cell == ("qsgd", 4)))
        short = [seed for seed in SEEDS if (*cell, seed) in runs and seed not in values[cell]] if "_to_" in name else []
        is_bound = bool(found and short)
        if is_bound:  # of the mean, since not all seeds got there
            spent = [runs[(*cell, seed)].last("time_s" if name.startswith("time") else "sent_bytes") for seed in short]
            assert same(record["at_least"], statistics.mean([*found, *spent]))
            bounds.add(cell)
        known = dict.fromkeys(spread([])) if is_bound else spread(found)
        for column, expected in {**known, "best": best}.items():
            assert same(record[column], expected), (name, cell, column, record[column], expected)
            count += 1
        if name.startswith("accuracy_equal"):
            column = {"epochs": "epoch", "time": "time_s", "bytes": "sent_bytes"}[name.rpartition("_")[2]]
            assert same(record["at"], limit(runs, (*cell, 0), column))
        baseline = values["none", cell[1]]
        pairs = [(values[cell][seed], baseline[seed]) for seed in values[cell] if seed in baseline]
        pairs = pairs if is_tested and cell[0] != "none" and not {cell, ("none", cell[1])} & bounds else []
        if name == "accuracy_equal_time" and cell[1] > 2:  # more workers than cores
            pairs = []
        gaps = [first - second for first, second in pairs]
        if name in TIMES or name.startswith("time_to"):
            count += trace_ratios(record, pairs, tests, cell)
            continue
        assert int(record["pairs"]) == len(pairs)
        assert same(record["difference"], sum(gaps) / len(gaps) if gaps else None), (name, cell)
        if len(pairs) > 1 and statistics.stdev(gaps) > 1e-9 * max(map(abs, itertools.chain(*pairs))):
            tested = stats.ttest_rel(*zip(*pairs, strict=True))
            tests[cell] = tested.pvalue
            low, high = tested.confidence_interval(0.95)
            assert same(record["difference_low"], low) and same(record["difference_high"], high)
            assert same(record["p"], tested.pvalue), (name, cell)
            count += 3
        else:
            assert record["p"] == record["p_holm"] == ""
        count += 1
    for cell, p in holm(tests).items():
        assert same(cells[cell]["p_holm"], p)
        count += 1
    return count


TIMES = ("throughput", "throughput_samples", "speedup", "efficiency", "time")


def trace_ratios(
    record: dict[str, str], pairs: list[tuple[float, float]], tests: dict[tuple[str, int], float], cell: tuple[str, int]
) -> int:
    """Check the test of a measure of times: of log ratios; all runs were made at once, so that seeds pair them."""
    if cell[1] > fabricate.CORES:  # oversubscribed
        pairs = []
    assert int(record["pairs"]) == len(pairs)
    if not pairs:
        assert record["difference"] == record["p"] == record["p_holm"] == ""
        return 2
    logs = [math.log(first / second) for first, second in pairs]
    level = math.exp(statistics.mean(math.log(second) for _, second in pairs))
    assert same(record["difference"], level * math.expm1(statistics.mean(logs)))
    if len(pairs) > 1 and statistics.stdev(logs) > 1e-9:
        tested = stats.ttest_1samp(logs, 0)
        tests[cell] = tested.pvalue
        low, high = tested.confidence_interval(0.95)
        assert same(record["difference_low"], level * math.expm1(low))
        assert same(record["difference_high"], level * math.expm1(high)) and same(record["p"], tested.pvalue)
        return 5
    assert record["p"] == record["p_holm"] == ""
    return 2


def test_every_number_of_the_table_of_runs(directory: Path, runs: dict[Place, Run]) -> None:
    records = rows_of(directory / "tables" / "runs.csv")
    assert len(records) == 29
    for record in records:
        place = (record["compressor"], int(record["workers"]), int(record["seed"]))
        assert record["status"] == ENDED.get(place, "done")
        if place in runs:
            run = runs[place]
            for column, expected in {
                "accuracy": run.last("test_accuracy"),
                "best_accuracy": max(float(row["test_accuracy"]) for row in run.epochs),
                "loss": run.last("test_loss"),
                "iterations_per_second": 1 / run.mean("step_s"),
                "samples_per_second": 128 / run.mean("step_s"),
                "time_s": run.last("time_s"),
                "sent_bytes": run.mean("sent_bytes"),
                "compression_ratio": run.mean("compression_ratio"),
                "compression_error": mean(run.steps, "compression_error"),
            }.items():
                assert same(record[column], expected), (place, column)


def test_what_people_read_are_these_numbers(directory: Path, runs: dict[Place, Run]) -> None:
    lines = (directory / "tables" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    shown = {cells[1].strip(): cells[2:4] for cells in (line.split("|") for line in lines if line.startswith("| "))}
    p_values = {
        (row["compressor"], int(row["workers"])): row["p_holm"]
        for row in rows_of(directory / "tables" / "accuracy.csv")
    }
    absent = {
        ("none", 4): " (n=4, 1 failed)",
        ("qsgd", 2): " (n=4, 1 running)",
        ("qsgd", 4): " (n=4, 1 missing)",
        ("svd", 2): " (n=3, 1 failed, 1 diverged)",
    }
    for compressor, workers in itertools.product(COMPRESSORS, WORKERS):
        values = [100 * runs[place].last("test_accuracy") for place in runs if place[:2] == (compressor, workers)]
        text = shown[compressor][WORKERS.index(workers)].strip()
        assert "†" not in text, "which is about times"
        if len(values) == 1:
            assert text == f"{values[0]:.2f} (n=1, 4 failed)"
            continue
        p = p_values[compressor, workers]
        star = "\\*" if p and float(p) < 0.05 else ""
        expected = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}{star}"
        assert text == expected + absent.get((compressor, workers), "")
    assert any("\\*" in text for texts in shown.values() for text in texts)
