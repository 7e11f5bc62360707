"""Build the table of a sweep's races: speeds relative to the baseline, with intervals."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gradsweep.text import plural
from reports.analysis.grid import Grid
from reports.analysis.measures import THROUGHPUT_TOPIC
from reports.analysis.remarks import explain_settings
from reports.analysis.table import (
    ALIKE,
    DISTURBED,
    MARKS,
    NO_RUN,
    NOT_RACED,
    ReportTable,
    TableCell,
    TableColumn,
    find_uneven,
    make_text_cell,
)
from reports.reading.networks import find_networked
from reports.reading.races import RaceNotes
from reports.reading.text import format_number, format_setting, join_words, shorten_list

NAME = "race"
_NAMELESS = "the baseline"  # whose run is not there


def build_race_table(grid: Grid, notes: RaceNotes) -> ReportTable | None:
    """Return the table of the ratios that races have measured; None without a race.

    Args:
        grid: the layout of the sweep; the table's columns are its numbers of workers.
        notes: the records of the races on pairs of runs.
    """
    runs = grid.runs
    raced = runs[runs["throughput_ratio"].notna()].drop_duplicates(["cell", "sweep", "race", "race_baseline"])
    if raced.empty:
        return None
    labels = dict(zip(zip(runs["sweep"], runs["run"], strict=True), runs["label"], strict=True))
    by_name = dict(zip(runs["run"], runs["label"], strict=True))  # of several sweeps with the same run, one has it
    places_of_baselines = zip(raced["sweep"], raced["race_baseline"], strict=True)
    names = [labels.get(place, by_name.get(place[1], _NAMELESS)) for place in places_of_baselines]
    raced = raced.assign(baseline=names, uneven=find_uneven(raced))
    baselines = sorted(set(raced["baseline"]))
    keys = ["label", *grid.keys]
    if "sweep" not in keys and raced.duplicated([*keys, "workers"]).any():  # the cell raced in several sweeps
        keys.append("sweep")
    present = set(zip(*(runs[key].map(format_setting) for key in (*keys, "workers")), strict=True))
    keys += ["baseline"] if len(baselines) > 1 else []
    places = [tuple(map(format_setting, place)) for place in zip(*(raced[key] for key in keys), strict=True)]
    found = dict(zip(zip(places, raced["workers"], strict=True), raced.to_dict("records"), strict=True))
    rows = []
    for place in dict.fromkeys(places):
        own = place[: len(place) - (len(baselines) > 1)]
        cells = [
            _format_ratio(
                found.get((place, workers)),
                NOT_RACED if (*own, format_setting(workers)) in present else NO_RUN,
            )
            for workers in grid.workers
        ]
        rows.append((*map(make_text_cell, place), *cells))
    heads = [TableColumn("compressor" if key == "label" else key) for key in keys]
    heads += [TableColumn(plural(format_setting(workers) or "?", "worker"), "x", "x") for workers in grid.workers]
    title = f"Throughput in the race, times that of {_NAMELESS if len(baselines) > 1 else baselines[0]}"
    records = [
        {**dict(zip(keys, place, strict=True)), "workers": workers, **_make_record(row)}
        for (place, workers), row in found.items()
    ]
    return ReportTable(
        NAME,
        title,
        tuple(heads),
        len(keys),
        tuple(rows),
        grid.caption,
        tuple(_write_remarks(grid, notes)),
        tuple(records),
        THROUGHPUT_TOPIC,
        grid.settings,
        "in brackets: 95 % interval",
    )


def _format_ratio(row: dict[str, Any] | None, absence: str) -> TableCell:
    """Return the text of a ratio, `0.93 [0.90, 0.96]`, with marks, or the word for its absence."""
    if row is None:
        return TableCell(absence, absence, is_word=True, said=(absence,))
    ratio, low, high = (row[f"throughput_ratio{end}"] for end in ("", "_low", "_high"))
    if row["raced_by"] == row["race_baseline"]:
        return TableCell(ratio, "1")
    marks = [ALIKE] if low <= 1 <= high else []
    marks += [MARKS[DISTURBED]] if row["uneven"] else []
    text = f"{format_number(ratio)} [{format_number(low)}, {format_number(high)}]{''.join(marks)}"
    return TableCell(ratio, text, said=tuple(marks))


def _make_record(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("iterations_per_second", "throughput_ratio", "throughput_ratio_low", "throughput_ratio_high")
    return {**{column: row[column] for column in columns}, "race_blocks": row["race_blocks"], "race": row["race"]}


def _write_remarks(grid: Grid, notes: RaceNotes) -> list[str]:
    """Return how the ratios were measured, and which runs (besides the baseline) do not differ significantly."""
    said = ["runs took blocks of steps in turns, in random order"]
    alike = [
        f"{_name_run(grid, pair.first)} and {_name_run(grid, pair.second)}{_name_workers(grid, pair.first)}"
        for pair in notes.pairs
        if pair.low <= 1 <= pair.high and not pair.has_baseline
    ]
    if alike:
        said.append(f"cannot be told apart either: {'; '.join(shorten_list(alike))}")
    said += explain_settings(grid.runs)
    is_uneven, is_networked = find_uneven(grid.runs), find_networked(grid.runs)
    if (is_uneven & is_networked).any():
        said.append(
            "other programs slowed the cores in a race over a network, but not the network: with the cores for "
            "themselves, the runs compute faster, and these ratios would be different"
        )
    if (is_uneven & ~is_networked).any():
        most = grid.runs.loc[is_uneven & ~is_networked, "ratio_cores_of_others"].max()
        said.append(
            f"other processes took up to {100 * most:.0f} % of the cores in a race, and slowed runs with more "
            "exchanges more: on a quiet machine, these ratios would be different"
        )
    if notes.unfinished:
        said.append(f"measured until it was ended early, or until now: {join_words(shorten_list(notes.unfinished))}")
    absent = [f"{_name_run(grid, run)}{_name_workers(grid, run)} ({why})" for run, why in notes.left_out.items()]
    if absent:
        said.append(f"left out of the race: {join_words(shorten_list(absent))}")
    return said


def _name_run(grid: Grid, run: str) -> str:
    """Return the label of a run, with the keys that distinguish it from other runs with this label."""
    row = grid.runs[grid.runs["run"] == run]
    if row.empty:
        return run
    first: pd.Series = row.iloc[0]
    names = [first["label"], *(f"{key}={format_setting(first[key]) or 'null'}" for key in grid.keys)]
    return " ".join(map(str, names))


def _name_workers(grid: Grid, run: str) -> str:
    """Return a suffix for a run's name with its number of workers; empty if all runs have the same number."""
    found = grid.runs.loc[grid.runs["run"] == run, "workers"]
    return (
        ""
        if found.empty or len(grid.workers) == 1
        else f" with {plural(format_setting(found.iloc[0]) or '?', 'worker')}"
    )
