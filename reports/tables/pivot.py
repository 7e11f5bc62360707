"""Build a table of any measure by any keys: `--rows model,compressor --cols workers --value accuracy`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean
from reports.analysis import measures
from reports.analysis.cells import AGAINST, Cells, find_baselines
from reports.analysis.grid import BASELINE, Grid, lay_out_runs
from reports.analysis.remarks import compare_equal_work, explain_few_steps
from reports.analysis.table import ReportTable
from reports.analysis.targets import choose_targets
from reports.reading import networks
from reports.reading.columns import is_config_key
from reports.reading.text import format_setting, join_words, make_sort_key
from reports.tables import sweep_tables

_PLACES = ("sweep", "run", "status")  # columns that are no config keys, but valid
_LONGEST = 100  # characters of a file's name


@dataclasses.dataclass(frozen=True)
class Choice:
    """The table that the user has asked for.

    Attributes:
        rows, cols: config keys, as they are typed.
        value: the name of a measure, or a column of `Report.runs`.
        where: the values that a run must have to be included, by column.
    """

    rows: Sequence[str] = ("compressor",)
    cols: Sequence[str] = ("workers",)
    value: str = "accuracy"
    where: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


def pivot(
    runs: pd.DataFrame,
    epochs: pd.DataFrame,
    choice: Choice,
    swept: Sequence[str] = (),
    targets: Sequence[float] | None = None,
    against: Mapping[str, str] = AGAINST,
    typed: Sequence[str] | None = None,
) -> ReportTable:
    """Return the chosen table; runs that are equal in the keys of rows and columns share a cell, and notes name the
    others.

    Args:
        runs, epochs: of a `Report`.
        swept: the keys that were swept, as far as they are known.
        targets, against: see `sweep_tables.build_tables`.
        typed: see `lay_out_runs`.

    Raises:
        gradsweep.errors.UsageError: there is no such column, or no run meets the conditions.
    """
    if runs.empty:
        raise UsageError("there are run directories, but no run that could be read")
    grid = lay_out_runs(runs, swept)
    names = (*choice.rows, *choice.cols)
    for option, keys in (("--rows", choice.rows), ("--cols", choice.cols), ("--where", choice.where)):
        _check_columns(option, keys, list_columns(grid))
    check_against(grid, against)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--rows and --cols: {name} is there twice")
    asked = re.fullmatch(r"(?:time|bytes)_to_(\d+(?:\.\d+)?)", choice.value)
    if targets is None:
        targets = choose_targets(grid.runs["best_accuracy"].where(grid.runs["status"] == run_directory.DONE))
    if asked and not 0 < float(asked[1]) <= 100:
        raise UsageError(f"--value {choice.value}: expected percent above 0 and up to 100, such as time_to_95")
    targets = [*targets, *([float(asked[1]) / 100] if asked else [])]
    known = measures.list_measures(targets, grid.runs)
    _check_columns("--value", [choice.value], list(dict.fromkeys(measure.name for measure in known.values())), known)
    measure = sweep_tables.name_baseline(known[choice.value], against)

    derived, notes = measures.derive_measures(grid, find_baselines(grid, grid.runs, against), epochs, targets)
    if measure.column not in derived:
        raise UsageError(
            f"--value {choice.value}: no run has it, since all have {format_setting(grid.workers[0])} workers"
        )
    chosen = derived[_select_runs(grid, choice.where)]
    places = [(name == "compressor", name) for name in names]
    ranks = [
        [(is_first and format_setting(value) != BASELINE, make_sort_key(value)) for value in chosen[name]]
        for is_first, name in places
    ]
    ranked = sorted(range(len(chosen)), key=lambda row: [rank[row] for rank in ranks])
    chosen = chosen.iloc[ranked].reset_index(drop=True)
    part = lay_out_runs(chosen[list(runs.columns)], swept, typed)
    cells = Cells(part, chosen, names, against)
    table = sweep_tables.build_measure_table(part, cells, measure, len(choice.rows))
    said = [f"only runs with {_format_clause(key, texts)}" for key, texts in choice.where.items()]
    said += [*networks.write_remarks(chosen), *explain_few_steps(chosen)]
    said += [notes[measure.name]] if measure.name in notes else []
    said += compare_equal_work(cells) if measure.is_time and measure.is_tested else []
    by = " and ".join(filter(None, (", ".join(choice.rows), ", ".join(choice.cols))))
    title = f"{measure.title} by {by}" if by else measure.title
    return dataclasses.replace(
        table,
        name=_make_file_name(choice),
        title=title,
        remarks=(*said, *cells.write_remarks(measure), *table.remarks),
    )


def list_columns(grid: Grid) -> list[str]:
    """Return the columns that `--rows`, `--cols` and `--where` can name, swept ones first."""
    first = ["compressor", *grid.hyper, *grid.keys, "workers", *grid.run_keys]
    others = [column for column in grid.runs if is_config_key(column) and column not in ("label", "cell")]
    return list(dict.fromkeys([*first, *others, *_PLACES]))


def parse_where(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the conditions on runs that the command line gives as `key=value[,value]`: the values by key.

    Raises:
        gradsweep.errors.UsageError: a condition has another form.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals):
            raise UsageError(f"--where {text}: expected key=value or key=value,value")
        found[key.removesuffix(".name")] = values.split(",")
    return found


def parse_against(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the baseline that the command line gives as `key=value` words; compressor=none without words.

    Raises:
        gradsweep.errors.UsageError: a word has another form.
    """
    pairs = [text.partition("=") for text in texts]
    for (key, equals, _), text in zip(pairs, texts, strict=True):
        if not (key and equals):
            raise UsageError(f"--against {text}: expected key=value")
    return {key.removesuffix(".name"): value for key, _, value in pairs} or AGAINST


def check_against(grid: Grid, against: Mapping[str, str]) -> None:
    """Refuse a baseline that matches no run or all runs; the default is not checked."""
    if against is AGAINST:
        return
    _check_columns("--against", against, list_columns(grid))
    is_baseline = pd.Series(True, grid.runs.index)
    for key, text in against.items():
        is_baseline &= _match_values(grid, key, [text], "--against")
    if is_baseline.all():
        names = join_words([_format_clause(key, [text]) for key, text in against.items()])
        raise UsageError(f"--against: all runs have {names}, so there is nothing to compare with them")


def _select_runs(grid: Grid, where: Mapping[str, Sequence[str]]) -> pd.Series:
    chosen = pd.Series(True, grid.runs.index)
    for key, texts in where.items():
        chosen &= _match_values(grid, key, texts, "--where")
    if not chosen.any():
        raise UsageError(
            f"--where: no run has {join_words([_format_clause(key, texts) for key, texts in where.items()])}"
        )
    return chosen


def _match_values(grid: Grid, key: str, texts: Sequence[str], option: str) -> pd.Series:
    """Tell for each run whether its value of a key is one of these."""
    values = grid.runs[key]
    if any(_is_value(value, ",".join(texts)) for value in values.unique()):
        texts = [",".join(texts)]  # a value with commas
    for text in texts:
        if not any(_is_value(value, text) for value in values.unique()):
            there = [format_setting(value) or "null" for value in sorted(values.unique(), key=make_sort_key)]
            meant = did_you_mean(text, there)
            raise UsageError(f"{option} {key}={text}: no run has that; {meant}there are {', '.join(there)}")
    return values.map(lambda value: any(_is_value(value, text) for text in texts))


def _is_value(value: Any, text: str) -> bool:
    """Tell whether a config value equals the typed one: null means no value, and 1e-3 is 0.001."""
    shown = format_setting(value)
    if shown == text or (shown or "null") == text:
        return True
    try:
        return not isinstance(value, str) and float(shown) == float(text)
    except ValueError:
        return False


def _check_columns(option: str, names: Iterable[str], valid: Sequence[str], also: Iterable[str] = ()) -> None:
    for name in names:
        if name not in valid and name not in also:
            meant = did_you_mean(name, [*valid, *also])
            raise UsageError(f"{option} {name}: no such column; {meant}valid is one of {', '.join(valid)}")


def _format_clause(key: str, texts: Sequence[str]) -> str:
    return f"{key}={' or '.join(texts)}"


def _make_file_name(choice: Choice) -> str:
    """Return a file name that describes the table."""
    parts = [choice.value, "by", *choice.rows, *choice.cols]
    parts += [f"{key}-{'-'.join(texts)}" for key, texts in choice.where.items()]
    return re.sub(r"[^\w.-]", "_", "_".join(parts))[:_LONGEST]
