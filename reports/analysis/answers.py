"""Answer what a sweep asks: which compressor was the fastest in each race, by how much, and how accurate it is."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from gradsweep.run_directory import DONE
from gradsweep.text import plural
from reports.analysis.grid import Grid
from reports.analysis.measures import name_samples
from reports.analysis.table import find_uneven
from reports.reading.text import format_number, format_setting, join_words, make_sort_key

MOST = 8
"""The most sentences; the table of the race has the rest."""


def write_answers(grid: Grid) -> list[str]:
    """Return a sentence for each place where runs raced: the fastest run, or that none is faster than the baseline.

    A run is called faster (slower) if the whole 95 % interval of its ratio to the baseline is above (below) 1. Its
    accuracy (of a text, its loss) and that of the baseline are means over the trained runs that differ in their seed.
    Places with the same network, model and the like, where no run is faster, share a sentence. It says where a
    disturbance could change the ratio.
    """
    raced = grid.runs[grid.runs["throughput_ratio"].notna()].drop_duplicates(["sweep", "race", "raced_by"])
    if raced.empty:
        return []
    by_baseline = raced.groupby(["sweep", "race", "race_baseline"], sort=False, observed=True)
    races = [race for _, race in by_baseline if (race["raced_by"] != race["race_baseline"]).any()]
    keys = dict.fromkeys(["sweep", *grid.keys] if raced["sweep"].nunique() > 1 else grid.keys)
    named = [key for key in keys if raced[key].map(str).nunique() > 1 and all(_is_constant(r, key) for r in races)]
    answers: dict[tuple[str, str], list[str]] = {}  # the workers, by the place and what is true there
    for race in sorted(races, key=lambda race: make_sort_key(race["workers"].iloc[0])):
        place = ", ".join(f"{key}={format_setting(race[key].iloc[0]) or 'null'}" for key in named)
        answers.setdefault((place, _describe_fastest(grid, race, named)), []).append(
            format_setting(race["workers"].iloc[0]) or "?"
        )
    in_order = sorted(answers.items(), key=lambda answer: answer[0][0])
    sentences = [_write_sentence(place, workers, fact) for (place, fact), workers in in_order]
    more = len(sentences) - MOST
    return [*sentences[:MOST], *([f"{plural(more, 'more place')} in the table of the race."] if more > 0 else [])]


def _is_constant(race: pd.DataFrame, key: str) -> bool:
    return race[key].map(str).nunique() == 1


def _describe_fastest(grid: Grid, race: pd.DataFrame, named: list[str]) -> str:
    """Return which run of a race is faster than the baseline, and by how much."""
    is_baseline = race["raced_by"] == race["race_baseline"]
    others = [key for key in grid.keys if key not in named and not _is_constant(race, key)]
    baseline = race[is_baseline]
    if baseline.empty:  # of several sweeps with the same run, one has it
        baseline = grid.runs[grid.runs["run"] == race["race_baseline"].iloc[0]].drop_duplicates("run")
    baselines = list(_name_rows(baseline, others)) or ["the baseline"]
    compared = race[~is_baseline]
    faster = compared[compared["throughput_ratio_low"] > 1]
    disturbed = "on disturbed cores" if find_uneven(race).any() else ""
    if (compared["throughput_ratio_high"] < 1).all():
        names = list(_name_rows(compared, others))
        slower = f"{'all other runs are' if len(names) > 1 else f'{names[0]} is'} certainly slower than {baselines[0]}"
        return " ".join(filter(None, (slower, disturbed)))
    if faster.empty:
        return f"no run is certainly faster than {baselines[0]}"
    best = faster.loc[[faster["throughput_ratio"].idxmax()]]
    ratio, low, high = (format_number(best[f"throughput_ratio{end}"].iloc[0]) for end in ("", "_low", "_high"))
    interval = ", ".join(filter(None, (f"95 % interval {low} to {high}", disturbed)))
    fact = f"{next(_name_rows(best, others))} is {ratio} times as fast as {baselines[0]} ({interval})"
    return f"{fact}{_compare_quality(grid, best['cell'].iloc[0], baseline['cell'])}"


def _compare_quality(grid: Grid, cell: int, baseline: pd.Series) -> str:
    """Return a phrase with the accuracy or loss of a cell and of the baseline's; empty if one of them is not known."""
    column, scale, unit = ("loss", 1, "") if name_samples(grid.runs) == "tokens" else ("accuracy", 100, " %")
    means = grid.runs.loc[grid.runs["status"] == DONE].groupby("cell")[column].mean().dropna()
    if baseline.empty or cell not in means or baseline.iloc[0] not in means:
        return ""
    own, other = (f"{format_number(scale * means[each], 4)}{unit}" for each in (cell, baseline.iloc[0]))
    return f", with {'a loss' if column == 'loss' else 'an accuracy'} of {own} instead of {other}"


def _name_rows(rows: pd.DataFrame, keys: list[str]) -> Iterator[str]:
    for _, row in rows.iterrows():
        yield " ".join([row["label"], *(f"{key}={format_setting(row[key]) or 'null'}" for key in keys)])


def _write_sentence(place: str, workers: list[str], fact: str) -> str:
    where = plural(join_words(workers), "worker")
    return f"{place}, {where}: {fact}." if place else f"{where}: {fact}."
