"""The tables of a sweep: what a reader compares, in units a reader knows.

Every table is rows of the compressor (and whatever else was swept) by columns of workers, or one row
per run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reports.grid import BASELINE, Grid
from reports.machines import remarks
from reports.table import MARKS, MEANINGS, MISSING, NO_BASELINE, NOT_MEASURED, Cell, Column, Row, Table
from reports.text import byte_unit, counted, listed, number, setting
from sweep import run as rundir


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that every run has, as a table shows it.

    `unit` is that of the column of `Report.runs`; people read it times `scale` as `shown`.
    """

    name: str
    title: str
    column: str
    unit: str
    scale: float = 1.0
    shown: str = ""
    digits: int = 3

    def scaled(self, values: pd.Series) -> Measure:
        """The same for a table of these values: bytes are shown in the unit that suits the largest."""
        if self.unit != "B":
            return self
        size, unit = byte_unit(values.max())
        return dataclasses.replace(self, scale=1 / size, shown=unit)

    def text(self, value: float) -> str:
        return number(value * self.scale, self.digits)


THROUGHPUT = Measure("throughput", "Throughput", "iterations_per_second", "it/s")
ACCURACY = Measure("accuracy", "Test accuracy after the last epoch", "accuracy", "fraction", 100, "%", digits=4)
MEASURES = (
    THROUGHPUT,
    Measure("throughput_samples", "Throughput, all workers together", "samples_per_second", "samples/s"),
    ACCURACY,
    Measure("accuracy_best", "Test accuracy after the best epoch", "best_accuracy", "fraction", 100, "%", digits=4),
    Measure("speedup", f"Speed-up over {BASELINE} at equal workers", "speedup", f"x {BASELINE}"),
    Measure("payload", "Message of one worker per step", "payload_bytes", "B"),
    Measure("sent", "Put on the wire by one worker per step", "sent_bytes", "B"),
    Measure("compression_ratio", "Compression ratio of a message", "compression_ratio", "x fp32"),
)
_RUN_MEASURES = (
    Measure("", "accuracy", "accuracy", "fraction", 100, "%", digits=4),
    Measure("", "best", "best_accuracy", "fraction", 100, "%", digits=4),
    Measure("", "loss", "loss", "nats"),
    Measure("", "throughput", "iterations_per_second", "it/s"),
    Measure("", "throughput", "samples_per_second", "samples/s"),
    Measure("", "training", "time_s", "s"),
    Measure("", "sent", "sent_bytes", "B"),
    Measure("", "ratio", "compression_ratio", "x fp32"),
    Measure("", "error", "compression_error", "relative"),
)


def tables(grid: Grid) -> list[Table]:
    """All tables of a sweep; the speed-up only where there is something to compare with."""
    runs = grid.runs.assign(speedup=_speedup(grid))
    measures = [measure for measure in MEASURES if measure.column != "speedup" or BASELINE in set(runs["compressor"])]
    pivots = [pivot(grid, runs, measure) for measure in measures]
    said = tuple(remarks(grid.runs))
    return [dataclasses.replace(table, remarks=said) for table in (*pivots, _phases(grid), _runs(grid))]


def headline(grid: Grid) -> str:
    """The sweep in a few sentences: its size, how much of it is done, the best of it, and what its times are worth."""
    runs = grid.runs
    if runs.empty:
        return "There are run directories, but no run that could be read."
    statuses = [f"{(runs['status'] == status).sum()} {status}" for status in runs["status"].unique()]
    workers = counted(listed([setting(count) or "?" for count in grid.workers]), "worker")
    size = f"{counted(len(runs), 'run')} of {counted(len(grid.labels), 'compressor')} with {workers}"
    sentences = [f"{size}: {listed(statuses)}."]
    done = runs[runs["status"] == rundir.DONE]
    fair = done[~done[list(MARKS)].any(axis=1)]
    for what, measure, candidates in (("test accuracy", ACCURACY, done), ("throughput", THROUGHPUT, fair)):
        values = candidates[measure.column].dropna()
        if len(values):
            best = candidates.loc[values.idxmax()]
            keys = [f"{key}={setting(best[key])}" for key in grid.run_keys]
            name = ", ".join([best["label"], counted(setting(best["workers"]), "worker"), *keys])
            sentences.append(f"Highest {what}: {measure.text(values.max())} {measure.shown or measure.unit} ({name}).")
    if shared := int(runs["shared_cores"].sum()):
        sentences.append(f"{counted(shared, 'run')} shared cores with others: times of these tell nothing.")
    return " ".join(sentences)


def pivot(grid: Grid, runs: pd.DataFrame, measure: Measure) -> Table:
    """One measure by compressor (and the other swept keys) x workers.

    Args:
        grid: the layout.
        runs: its runs with a column `measure.column`, of numbers, or of words where there is none.
    """
    measure = measure.scaled(pd.to_numeric(runs[measure.column], errors="coerce"))
    names = ("label", *grid.run_keys)
    cells: dict[tuple[str, ...], dict[str, Cell]] = {}
    marked: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}
    columns = (runs[key] for key in ("status", measure.column, "workers", *names))
    for flags, status, value, *place in zip(runs[list(MARKS)].to_dict("records"), *columns, strict=True):
        workers, *row = map(setting, place)
        cells.setdefault(tuple(row), {})[workers] = _cell(status, value, measure, _marks(flags))
        for mark, counts_marked in marked.setdefault(tuple(row), dict.fromkeys(MARKS, ())).items():
            marked[tuple(row)][mark] = (*counts_marked, *([workers] if flags[mark] else []))
    nothing = Cell(MISSING, MISSING, is_word=True)
    counts = [setting(workers) for workers in grid.workers]
    rows = [
        Row((*map(_text, row), *(found.get(workers, nothing) for workers in counts)), marked[row])
        for row, found in cells.items()
    ]
    shown = measure.shown or measure.unit
    headings = [Column("compressor"), *map(Column, grid.run_keys)]
    headings += [Column(counted(workers or "?", "worker"), measure.unit, shown) for workers in counts]
    return Table(measure.name, measure.title, tuple(headings), len(names), tuple(rows), grid.caption)


def unfinished(grid: Grid) -> Table:
    """The runs that are not done, and why."""
    runs = grid.runs[grid.runs["status"] != rundir.DONE]
    reasons = map(why, runs["status"], runs["reason"])
    columns = zip(*(runs[key] for key in ("label", *grid.run_keys, "workers", "status")), reasons, strict=True)
    rows = tuple(Row(tuple(_text(setting(value)) for value in row)) for row in columns)
    names = ("compressor", *grid.run_keys, "workers", "status", "reason")
    return Table("unfinished", "Runs that are not done", tuple(map(Column, names)), len(names) - 2, rows)


def why(status: str, reason: Any) -> str:
    """The reason why a run is not done, or else what its status means."""
    return setting(reason) or MEANINGS.get(status, "no reason is known")


def _speedup(grid: Grid) -> list[float | str]:
    """Iterations per second over those of the baseline run that is equal in all other swept keys."""
    keys = [[setting(value) for value in grid.runs[key]] for key in (*grid.run_keys, "workers")]
    places = list(zip(*keys, strict=True))
    done = grid.runs["status"] == rundir.DONE
    speeds = list(grid.runs["iterations_per_second"].where(done))
    compressors = grid.runs["compressor"].map(setting)
    baseline = {
        place: speed for place, name, speed in zip(places, compressors, speeds, strict=True) if name == BASELINE
    }
    return [
        speed / baseline[place] if baseline.get(place, 0) > 0 else NO_BASELINE
        for place, speed in zip(places, speeds, strict=True)
    ]


def _phases(grid: Grid) -> Table:
    names = [f"{phase}_s" for phase in rundir.PHASES]
    whole = grid.runs["step_s"]
    shares = grid.runs[names].div(whole, axis=0)
    values = shares.assign(other=1 - shares.sum(axis=1, skipna=False), step_s=whole)
    share = Measure("", "", "", "fraction", 100, "%")
    measures = [*(dataclasses.replace(share, title=phase, column=f"{phase}_s") for phase in rundir.PHASES)]
    measures += [
        dataclasses.replace(share, title="other", column="other"),
        Measure("", "step", "step_s", "s", 1e3, "ms"),
    ]
    return _by_run(grid, values, measures, "phases", "Share of the phases in the time of a step")


def _runs(grid: Grid) -> Table:
    measures = [measure.scaled(grid.runs[measure.column]) for measure in _RUN_MEASURES]
    table = _by_run(grid, grid.runs, measures, "runs", "All runs", first=("status",), last=("reason", "run"))
    options = "; ".join(f"{name} ({text})" for name, text in grid.options.items())
    return dataclasses.replace(table, caption=". ".join(filter(None, (grid.caption, options))))


def _by_run(
    grid: Grid,
    values: pd.DataFrame,
    measures: Sequence[Measure],
    name: str,
    title: str,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> Table:
    """One row per run: what it is, `first` texts, the measures, and `last` texts."""
    rows = []
    numbers = zip(*(values[measure.column] for measure in measures), strict=True)
    for run, measured in zip(grid.runs.to_dict("records"), numbers, strict=True):
        workers = setting(run["workers"])
        before, texts, after = (
            [_text(setting(run[key])) for key in keys] for keys in (("label", *grid.run_keys), first, last)
        )
        cells = [_cell(run["status"], value, measure) for value, measure in zip(measured, measures, strict=True)]
        count = Cell(workers, workers + _marks(run))
        marked = {mark: (workers,) for mark in MARKS if run[mark]}
        rows.append(Row((*before, count, *texts, *cells, *after), marked))
    names = [Column("compressor"), *map(Column, grid.run_keys), Column("workers")]
    columns = [*names, *map(Column, first), *(Column(m.title, m.unit, m.shown or m.unit) for m in measures)]
    return Table(name, title, (*columns, *map(Column, last)), len(names), tuple(rows), grid.caption)


def _marks(run: Mapping[Any, Any]) -> str:
    """The daggers that a run's numbers have."""
    return "".join(mark for column, mark in MARKS.items() if run[column])


def _cell(status: str, value: Any, measure: Measure, marks: str = "") -> Cell:
    if status != rundir.DONE:
        return Cell(status, status, is_word=True)
    if isinstance(value, str):
        return Cell(value, value, is_word=True)
    if not math.isfinite(value):
        return Cell(NOT_MEASURED, NOT_MEASURED, is_word=True)
    return Cell(float(value), measure.text(value) + marks)


def _text(text: str) -> Cell:
    return Cell(text, text)
