"""Read runs for an export: their options, their samples with wall times, and their results."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsweep import run_directory
from reports.reading import machines
from reports.reading.columns import METRIC, RUN_COLUMNS, is_config_key, name_in_csv
from reports.reading.report import Report
from reports.reading.run_files import LeftOut

NOT_ENDED = (run_directory.PENDING, run_directory.RUNNING)
_TOGETHER = 100  # runs whose steps are in memory at once
LAST = ("step", "epoch", "time_s", "lr")  # columns whose last value represents several steps; of others it is the mean
RESULTS = [name for name, dtype in RUN_COLUMNS.items() if dtype in ("Int64", "float64") and name not in machines.RATES]


@dataclasses.dataclass(frozen=True)
class Sample:
    """The values measured up to a step; their names begin with `step/` or `epoch/`, as those of live trackers."""

    step: int
    wall_s: float  # Unix time
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class EndedRun:
    """A run whose status is neither pending nor running.

    Attributes:
        began_s, ended_s: Unix times; 0 if they are not known.
        steps: the number of steps taken.
        options: with dotted keys, the options that change the numbers of the run.
        results: its known figures in `Report.runs`, such as `result/accuracy`.
        version: changes if the run has been resumed since.
        read: returns the samples from its CSVs; not called for a run that is not written.
    """

    sweep: str
    name: str
    signature: str
    status: str
    reason: str
    began_s: float
    ended_s: float
    steps: int
    options: Mapping[str, Any]
    results: Mapping[str, float]
    version: str
    read: Callable[[], list[Sample]]


def read_ended_runs(report: Report, every_s: float = 1.0) -> Iterator[EndedRun]:
    """Yield the ended runs of a report that have taken at least one step; add the other runs to `report.left_out`.

    Args:
        every_s: seconds of training whose steps are averaged into one sample, as by live trackers; 0: a sample for each
            step.
    """
    runs = report.runs
    steps_done = runs["steps_done"].fillna(0)
    for directory, status, steps in zip(runs["directory"], runs["status"], steps_done, strict=True):
        if status in NOT_ENDED or not steps:
            why = status if status in NOT_ENDED else "no step was taken"
            report.left_out.append(LeftOut(Path(directory), f"not exported: {why}"))
    runs = runs[~runs["status"].isin(NOT_ENDED) & (steps_done > 0)]
    for first in range(0, len(runs), _TOGETHER):
        rows = _CsvRows(runs.iloc[first : first + _TOGETHER].reset_index(drop=True), every_s)
        for _, row in rows.report.runs.iterrows():
            yield _make_ended_run(row, rows)
        report.left_out.extend(rows.report.left_out)


class _CsvRows:
    """The CSV rows of some runs, read when the values of one of them are first needed."""

    def __init__(self, runs: pd.DataFrame, every_s: float) -> None:
        self.report, self.every_s = Report((), runs), every_s

    @functools.cached_property
    def _by_run(self) -> list[dict[Any, pd.DataFrame]]:
        frames = (self.report.steps, self.report.epochs)
        return [dict(list(frame.groupby(["sweep", "run"], observed=True))) for frame in frames]

    def read_samples(self, sweep: str, run: str, ended_s: float) -> list[Sample]:
        empty = (self.report.steps.iloc[:0], self.report.epochs.iloc[:0])
        steps, epochs = (known.get((sweep, run), none) for known, none in zip(self._by_run, empty, strict=True))
        return make_samples(steps, epochs, ended_s, self.every_s)


def _make_ended_run(row: pd.Series, rows: _CsvRows) -> EndedRun:
    began, end = (0.0 if pd.isna(row[name]) else row[name].timestamp() for name in ("started", "ended"))
    return EndedRun(
        sweep=row["sweep"],
        name=row["run"],
        signature=row["signature"],
        status=row["status"],
        reason="" if pd.isna(row["reason"]) else row["reason"],
        began_s=began,
        ended_s=end,
        steps=int(row["steps_done"]),
        options={
            _name_option(key): row[key].item() if isinstance(row[key], np.generic) else row[key]
            for key in row.index
            if is_config_key(key) and not pd.isna(row[key])
        },
        results={
            f"result/{name.removeprefix(METRIC)}": float(row[name])
            for name in (*RESULTS, *(key for key in row.index if key.startswith(METRIC)))
            if not pd.isna(row[name])
        },
        version=f"{row['status']} {row['attempts']} {end:.3f} {row['steps_done']} {rows.every_s:g}",
        read=functools.partial(rows.read_samples, row["sweep"], row["run"], end),
    )


def make_samples(steps: pd.DataFrame, epochs: pd.DataFrame, ended_s: float, every_s: float = 1.0) -> list[Sample]:
    """Return the samples of a run, one for each step with a measurement, with their wall times.

    Wall times are counted back from the end of the run, in seconds of training and evaluation, as if all attempts had
    been one that ended with the last. If the end is not known, they are counted forward from 0.
    """
    steps, epochs = map(_convert_to_numbers, (steps, epochs))
    steps = _average(steps, every_s) if every_s else steps
    evaluated = np.concatenate([[0.0], epochs["evaluate_s"].fillna(0.0).cumsum()])
    # a row of epochs.csv is written after the evaluation, the row of its last step before it
    step_at = steps["time_s"] + evaluated[np.searchsorted(epochs["step"], steps["step"], side="left")]
    epoch_at = epochs["time_s"] + evaluated[1:]
    begin = max(ended_s - max([0.0, *step_at[-1:], *epoch_at[-1:]]), 0.0)
    told = [*_make_samples("step", steps, begin + step_at), *_make_samples("epoch", epochs, begin + epoch_at)]
    return sorted(told, key=lambda sample: sample.step)


def _convert_to_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as numbers, without those that name the run; an unknown time is replaced by the time before
    it.
    """
    numbers = frame.drop(columns=["sweep", "run"]).rename(columns=_name_column).astype("float64")
    return numbers.assign(time_s=numbers["time_s"].ffill().fillna(0.0))


def _average(steps: pd.DataFrame, every_s: float) -> pd.DataFrame:
    groups = steps.groupby(steps["time_s"] // every_s)
    means = groups.mean()
    means[list(LAST)] = groups[list(LAST)].last()
    return means.reset_index(drop=True)


def _make_samples(prefix: str, frame: pd.DataFrame, walls: pd.Series) -> Iterator[Sample]:
    """Yield the measured values of each row, without the step and without columns that live trackers do not get."""
    names = [name for name in frame if name != "step" and (prefix, name) != ("step", "time_s")]
    for step, wall, row in zip(frame["step"], walls, frame[names].to_numpy(), strict=True):
        values = {f"{prefix}/{name}": value for name, value in zip(names, row.tolist(), strict=True)}
        yield Sample(int(step), float(wall), {name: x for name, x in values.items() if not math.isnan(x)})


def _name_column(name: str) -> str:
    """Return the name of a column of `Report.epochs` or `Report.steps` in the run's CSV."""
    return name_in_csv(name)[0] if name.startswith(METRIC) else name


def _name_option(key: str) -> str:
    return key.removeprefix("config.") if key.removeprefix("config.") in RUN_COLUMNS else key
