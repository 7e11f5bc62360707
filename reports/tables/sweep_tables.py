"""Build the tables of a sweep, in units that a reader knows.

There are three kinds: a row for each compressor (and value of other swept keys) with a column for each number of
workers; a row for each cell; a row for each run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gradsweep import run_directory
from gradsweep.text import plural
from reports.analysis import measures
from reports.analysis.cells import AGAINST, NUMBERS, CellFigures, Cells, find_baselines
from reports.analysis.grid import ALGORITHM, Grid
from reports.analysis.measures import (
    ACCURACY,
    MEASURES,
    MEMORY,
    PEAK_MEMORY,
    SHARES,
    SPEEDUP,
    STEP,
    THROUGHPUT,
    Measure,
)
from reports.analysis.remarks import compare_equal_work, explain_settings, write_remarks
from reports.analysis.table import (
    MARKS,
    MEANINGS,
    NOT_MEASURED,
    ONE_MODEL,
    ReportTable,
    TableCell,
    TableColumn,
    count_marked,
    find_marks,
    is_marked,
    is_true,
    make_text_cell,
    name_flags,
)
from reports.analysis.targets import choose_targets
from reports.reading.text import (
    format_number,
    format_setting,
    format_settings,
    format_spread,
    join_words,
    make_sort_key,
    shorten_list,
)

_RUN_MEASURES = (
    Measure("", "accuracy", "accuracy", "fraction", 100, "%", digits=4),
    Measure("", "best", "best_accuracy", "fraction", 100, "%", digits=4),
    Measure("", "loss", "loss", ""),
    Measure("", "throughput", "iterations_per_second", "it/s", topic=measures.THROUGHPUT_TOPIC),
    Measure("", "throughput", "samples_per_second", "samples/s", topic=measures.THROUGHPUT_TOPIC),
    Measure("", "training", "time_s", "s"),
    Measure("", "sent", "sent_bytes", "B"),
    Measure("", "ratio", "compression_ratio", "x fp32"),
    Measure("", "error", "compression_error", "relative"),
)
_MARKED = frozenset(measure.column for measure in _RUN_MEASURES)
"""Columns whose figures have the marks of their run."""
_RUN_LOCAL = (
    Measure("", "own models", "local_accuracy", "fraction", 100, "%", digits=4, absent=ONE_MODEL),
    Measure("", "worst of them", "local_accuracy_least", "fraction", 100, "%", digits=4, absent=ONE_MODEL),
    Measure("", "consensus", "consensus_distance", "l2", absent=ONE_MODEL),
    Measure("", "spectral gap", "spectral_gap", "1 - rho", absent=ONE_MODEL),
)
"""Columns if some run has local models."""
_RUN_NETWORK = (
    Measure("", "one way", "network_latency_s", "s", 1e3, "ms"),
    Measure("", "link", "network_bandwidth", "bit/s", 1e-6, "Mbit/s"),
)
"""Columns if the network of some run was measured."""
_RUN_LEAST = (Measure("", "least loss", "least_loss", ""),)
"""Columns if the least loss of some run is known."""
_RUN_MEMORY = (Measure("", "peak memory", "peak_memory", "B"),)
"""Columns if the memory of some run was measured; earlier versions did not measure it."""
_ABOUT_TRAINING = "the time is that of the training of a run; throughputs are those of its race"
_ABOUT_MEMORY = (
    "each figure is the maximum over the workers, without the memory of the process before the run",
    "the peak also contains activations, data and temporary tensors",
)


def build_tables(
    grid: Grid,
    epochs: pd.DataFrame | None = None,
    targets: Sequence[float] | None = None,
    against: Mapping[str, str] = AGAINST,
) -> list[ReportTable]:
    """Return all tables of a sweep, except those of measures that no run has, such as a speed-up without baseline.

    Args:
        grid: the layout of the sweep.
        epochs: `Report.epochs` of its runs; without them there are no tables of progress.
        targets: test accuracies, 0.9 for 90 %, whose costs are shown; default: `choose_targets`.
        against: the config keys, and their values as texts, of the runs that others are compared with.
    """
    if targets is None:
        targets = choose_targets(grid.runs["best_accuracy"].where(grid.runs["status"] == run_directory.DONE))
    partner = find_baselines(grid, grid.runs, against)
    derived, notes = measures.derive_measures(grid, partner, epochs, targets)
    cells = Cells(grid, derived, ("label", *grid.keys, "workers"), against, partner)
    own = measures.list_metric_measures(grid.runs)
    if (least := measures.find_least_loss(grid.runs)) is not None:
        told = f"the least of any model is {format_number(math.exp(least))}, a loss of {format_number(least)}"
        notes["perplexity"] = told
    known = [measure.name_samples(grid.runs) for measure in (*MEASURES, *own, *list_target_measures(targets))]
    shown = [measure for measure in known if is_measured(measure, derived)]
    said, settings = write_remarks(grid.runs), explain_settings(grid.runs)
    control = compare_equal_work(cells)
    trained = [_ABOUT_TRAINING] if grid.runs["raced_by"].notna().any() else []
    made = []
    for measure in shown:
        table = build_measure_table(grid, cells, name_baseline(measure, against), len(grid.keys) + 1)
        noted = [*(said if measure.marks else ()), *filter(None, [notes.get(table.name)])]
        noted += [*cells.write_remarks(measure), *table.remarks, *(settings if measure.is_time else ())]
        noted += control if measure.is_time and measure.is_tested else []
        noted += trained if measure.marks and measure.is_of_training else []
        made.append(_set_remarks(table, noted))
    phases = _build_parts_table(grid, cells, "phases", "Share of the phases in the time of a step", (*SHARES, STEP))
    made.append(_set_remarks(phases, [*said, *settings, *control]))
    if grid.runs[PEAK_MEMORY.column].notna().any():
        made.append(_set_remarks(_build_memory_table(grid, cells), _ABOUT_MEMORY))
    return [*made, _set_remarks(_build_run_table(grid), said)]


def list_target_measures(targets: Sequence[float]) -> list[Measure]:
    """Return the measures of the time to each target, then those of the bytes."""
    return [measure for kind in zip(*map(measures.define_target_measures, targets), strict=True) for measure in kind]


def is_measured(measure: Measure, runs: pd.DataFrame) -> bool:
    """Tell whether some run has a value of this measure, or can have one when it is done."""
    done = measures.select_measured(runs, measure.column)
    if measure.column not in runs:
        return False
    return bool(runs.loc[done, measure.column].notna().any()) or (measure.absent == NOT_MEASURED and not done.any())


def name_baseline(measure: Measure, against: Mapping[str, str]) -> Measure:
    """Return the measure; if it is a speed-up, with the baseline in its name."""
    if measure is not SPEEDUP:
        return measure
    name = ", ".join(text if key == "compressor" else f"{key}={text}" for key, text in against.items())
    others = "workers" if "compressor" in against and len(against) == 1 else "other keys"
    return dataclasses.replace(measure, title=f"Speed-up over {name} at equal {others}", unit=f"x {name}")


def write_headline(grid: Grid) -> str:
    """Describe the sweep in a few sentences: its size, its progress, its best cells, runs with incomparable times."""
    runs = grid.runs
    if runs.empty:
        return "There are run directories, but no run that could be read."
    statuses = [f"{(runs['status'] == status).sum()} {status}" for status in runs["status"].unique()]
    workers = plural(join_words([format_setting(count) or "?" for count in grid.workers]), "worker")
    seeds = f" and {len(grid.seeds)} seeds" if len(grid.seeds) > 1 else ""
    algorithms = f" and {runs[ALGORITHM].nunique()} algorithms" if ALGORITHM in grid.keys else ""
    kinds = "a script" if grid.is_of_scripts else f"{plural(len(grid.labels), 'compressor')}{algorithms}"
    size = f"{plural(len(runs), 'run')} of {kinds} with {workers}{seeds}"
    sentences = [f"{size}: {join_words(statuses)}."]
    is_done = runs["status"] == run_directory.DONE
    is_timed = measures.select_once(runs, THROUGHPUT.column)
    is_fair = is_timed & ~is_marked(runs)
    marked = count_marked(runs[is_timed & ~is_fair]) if (is_timed & ~is_fair).any() else ""
    perplexity = next((each for each in measures.list_metric_measures(runs) if each.name == "perplexity"), None)
    quality = ("Highest test accuracy", ACCURACY) if perplexity is None else ("Lowest perplexity", perplexity)
    for what, measure, counts in ((*quality, is_done), ("Highest throughput", THROUGHPUT, is_fair)):
        known = runs.loc[counts & runs[measure.column].notna(), ["cell", measure.column]]
        note = f"; {marked} do not count" if marked and measure is THROUGHPUT else ""
        if len(known):
            sentences.append(f"{what}: {_describe_best(grid, known, measure)}{note}.")
        elif note and runs["throughput_ratio"].isna().all():  # else races tell which is the fastest
            sentences.append(f"No highest throughput is named: the times of {marked} are not comparable.")
    if shared := int(runs["shared_cores"].sum()):
        sentences.append(f"{plural(shared, 'run')} shared cores with others: times of these tell nothing.")
    return " ".join(sentences)


def _describe_best(grid: Grid, known: pd.DataFrame, measure: Measure) -> str:
    """Return a text with the best mean of a cell among the `known` values, and the name of that cell."""
    means = known.groupby("cell")[measure.column].mean()
    members = known[known["cell"] == (means.idxmin() if measure.lower_is_better else means.idxmax())]
    first, values = grid.runs.loc[members.index[0]], members[measure.column].to_numpy("float64") * measure.scale
    label = [] if grid.is_of_scripts else [first["label"]]
    names = [*label, plural(format_setting(first["workers"]), "worker")]
    names += shorten_list([f"{key}={format_setting(first[key]) or 'null'}" for key in grid.keys])
    text = format_number(float(values[0]), measure.digits)
    if len(grid.seeds) > 1:
        names.append(f"mean ± standard deviation, n={len(values)}" if len(values) > 1 else "n=1")
        text = (
            format_spread(float(values.mean()), float(values.std(ddof=1)), measure.digits) if len(values) > 1 else text
        )
    unit = "" if measure.unit == "number" else f" {measure.shown or measure.unit}"
    return f"{text}{unit} ({', '.join(names)})"


def build_measure_table(grid: Grid, cells: Cells, measure: Measure, rows: int) -> ReportTable:
    """Return a table of one measure; the first `rows` names of a cell name its row, the others its column."""
    measure = measure.choose_unit(cells.runs[measure.column].where(cells.runs["status"] == run_directory.DONE))
    across = cells.names[rows:]
    found: dict[tuple[str, ...], dict[tuple[str, ...], tuple[CellFigures, float | None]]] = {}
    limits = cells.get_first_values(f"{measure.column}_at")
    computed = cells.compute_figures(measure)
    has_bounds = any(figures.is_bound for figures in computed)
    for place, figures, limit in zip(cells.keys, computed, limits, strict=True):
        found.setdefault(place[:rows], {})[place[rows:]] = (figures, limit)
    kinds = set(zip(*(cells.runs[key] for key in across), strict=True)) if across else {()}
    ordered = sorted(kinds, key=lambda kind: list(map(make_sort_key, kind)))
    heads = list(dict.fromkeys(tuple(map(format_setting, kind)) for kind in ordered))
    lines, records, is_same = [], [], False
    for row, members in found.items():
        line = []
        for head in heads:
            figures, limit = members.get(head, (cells.nothing, None))
            is_same |= figures.is_same
            line.append(cells.format_figures(figures, measure))
            names = dict(zip(map(get_column_name, cells.names), (*row, *head), strict=True))
            at = {"at": limit} if any(limits) else {}
            at |= {"at_least": figures.bound if figures.is_bound else None} if has_bounds else {}
            records.append({**names, "measure": measure.name, "unit": measure.unit, **at, **figures.to_record()})
        lines.append((*map(make_text_cell, row), *line))
    unit = measure.shown or measure.unit
    headings = [TableColumn(get_column_name(name)) for name in cells.names[:rows]]
    headings += [TableColumn(_format_head(across, head) or measure.title, measure.unit, unit) for head in heads]
    return ReportTable(
        measure.name,
        measure.title,
        tuple(headings),
        rows,
        tuple(lines),
        grid.caption,
        remarks=("where all seeds differ by the same there is nothing to test, and no mark",) if is_same else (),
        records=tuple(records),
        topic=measure.topic,
        settings=grid.settings,
        spread=cells.describe_spread(measure),
    )


def get_column_name(name: str) -> str:
    """Return the heading of a column of `Grid.runs`, with a prefix if records have a number of the same name."""
    return "compressor" if name == "label" else f"config.{name}" if name in NUMBERS else name


def _format_head(across: Sequence[str], head: Sequence[str]) -> str:
    return ", ".join(
        plural(text or "?", "worker") if key == "workers" else f"{key}={text or 'null'}"
        for key, text in zip(across, head, strict=True)
    )


def build_unfinished_table(grid: Grid) -> ReportTable:
    """Return a table of the runs that should be done and are not, with the reasons."""
    is_pending, is_to_race = (
        grid.runs["status"] == run_directory.PENDING,
        grid.runs["reason"] == run_directory.ONLY_RACED,
    )
    runs = grid.runs[(grid.runs["status"] != run_directory.DONE) & ~(is_pending & is_to_race.fillna(False))]
    reasons = map(explain_status, runs["status"], runs["reason"])
    columns = zip(*(runs[key] for key in ("label", *grid.run_keys, "workers", "status")), reasons, strict=True)
    rows = tuple(tuple(make_text_cell(format_setting(value)) for value in row) for row in columns)
    names = ("compressor", *grid.run_keys, "workers", "status", "reason")
    return ReportTable("unfinished", "Runs that are not done", tuple(map(TableColumn, names)), len(names) - 2, rows)


def explain_status(status: str, reason: Any) -> str:
    """Return the reason why a run is not done; without a reason, the meaning of its status."""
    return format_setting(reason) or MEANINGS.get(status, "no reason is known")


def _build_memory_table(grid: Grid, cells: Cells) -> ReportTable:
    """Return a table of a worker's memory by part, all columns in the unit that suits the memory of the model."""
    model = MEMORY[0].choose_unit(cells.runs[MEMORY[0].column].where(cells.runs["status"] == run_directory.DONE))
    shown = [dataclasses.replace(measure, scale=model.scale, shown=model.shown) for measure in MEMORY]
    return _build_parts_table(grid, cells, "memory", "Memory of a worker by part", shown)


def _build_parts_table(grid: Grid, cells: Cells, name: str, title: str, shown: Sequence[Measure]) -> ReportTable:
    """Return a table with a row for each cell and a column for each measure: the parts, and last their total."""
    figures = [cells.compute_figures(measure) for measure in shown]
    lines, records = [], []
    for cell, place in enumerate(cells.keys):
        line = [
            cells.format_figures(found[cell], measure, with_count=False)
            for found, measure in zip(figures, shown, strict=True)
        ]
        count = [cells.format_count(figures[-1][cell])] if cells.expected > 1 else []
        lines.append((*map(make_text_cell, place), *count, *line))
        names = dict(zip(map(get_column_name, cells.names), place, strict=True))
        for found, measure in zip(figures, shown, strict=True):
            records.append({**names, "measure": measure.name, "unit": measure.unit, **found[cell].to_record()})
    headings = [TableColumn(get_column_name(name)) for name in cells.names]
    headings += [TableColumn("n")] if cells.expected > 1 else []
    headings += [TableColumn(measure.title, measure.unit, measure.shown) for measure in shown]
    return ReportTable(
        name,
        title,
        tuple(headings),
        len(cells.names),
        tuple(lines),
        grid.caption,
        records=tuple(records),
        topic=shown[-1].topic,
        settings=grid.settings,
        spread=cells.describe_spread(),
    )


def _build_run_table(grid: Grid) -> ReportTable:
    """Return a table with a row for each run: keys, status, measures, and the reason if it is not done."""
    runs = grid.runs
    some_have = [
        measure
        for measure in (*_RUN_LEAST, *_RUN_MEMORY, *_RUN_LOCAL, *_RUN_NETWORK)
        if runs[measure.column].notna().any()
    ]
    some_have += [dataclasses.replace(measure, title=measure.name) for measure in measures.list_metric_measures(runs)]
    shown = [measure.name_samples(runs).choose_unit(runs[measure.column]) for measure in (*_RUN_MEASURES, *some_have)]
    names = ("label", *grid.run_keys, "workers")
    columns: dict[str, Sequence[Any]] = {get_column_name(name): format_settings(runs[name]) for name in names}
    columns["status"] = format_settings(runs["status"])
    columns |= {measure.column: _get_numbers(runs[measure.column]) for measure in shown}
    columns["timed_steps"] = runs["timed_steps"].astype("object").where(runs["timed_steps"].notna(), None).tolist()
    flags = dict.fromkeys([*find_marks(runs), *name_flags(find_marks(runs), of_training=True)])
    columns |= {flag: is_true(runs[flag]).tolist() for flag in flags}
    texts = (*(["transport"] if runs["transport"].notna().any() else []), "reason", "run")
    columns |= {name: format_settings(runs[name]) for name in texts}
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    is_known = {measure.column: measures.find_known(runs, measure.column).to_numpy(bool) for measure in shown}
    lines = []
    for row, run in enumerate(records):
        before = (make_text_cell(run[get_column_name(name)]) for name in names[:-1])
        status, *after = (make_text_cell(run[name]) for name in ("status", *texts))
        workers = make_text_cell(run["workers"])
        cells = [_make_run_cell(run, measure, bool(is_known[measure.column][row])) for measure in shown]
        lines.append((*before, workers, status, *cells, *after))
    headings = [*map(TableColumn, map(get_column_name, names)), TableColumn("status")]
    headings += [TableColumn(measure.title, measure.unit, measure.shown or measure.unit) for measure in shown]
    options = "; ".join(f"{name} ({text})" for name, text in grid.options.items())
    return ReportTable(
        "runs",
        "All runs",
        (*headings, *map(TableColumn, texts)),
        len(names),
        tuple(lines),
        "; ".join(filter(None, (grid.caption, options))),
        records=tuple(records),
        topic=measures.RUNS_TOPIC,
        settings=grid.settings,
    )


def _make_run_cell(run: Mapping[str, Any], measure: Measure, is_known: bool) -> TableCell:
    """Return a run's cell for a measure, with the marks that concern it; a word if it has no number."""
    status, value = run["status"], run[measure.column]
    if is_known and value is not None:
        concerned = measure.marks if measure.column in _MARKED else ()
        flags = zip(concerned, name_flags(concerned, measure.is_of_training), strict=True)
        marks = tuple(MARKS[mark] for mark, flag in flags if run.get(flag))
        return TableCell(value, measure.format(value) + "".join(marks), said=marks)
    word = status if status != run_directory.DONE else measure.absent
    return TableCell(word, word, is_word=True, said=(word,))


def _get_numbers(values: pd.Series) -> list[float | None]:
    """Return numbers, with None for unknown ones."""
    numbers = values.to_numpy("float64", na_value=math.nan).tolist()
    return [value if math.isfinite(value) else None for value in numbers]


def _set_remarks(table: ReportTable, remarks: Sequence[str]) -> ReportTable:
    return dataclasses.replace(table, remarks=tuple(remarks))
