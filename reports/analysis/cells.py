"""Cells, each of which has the runs that differ only in their seed, and their differences from a baseline."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gradsweep import run_directory
from reports.analysis.grid import ALGORITHM, BASELINE, SEED, SGD, Grid, is_method_key
from reports.analysis.measures import STEP_TOPIC, THROUGHPUT_TOPIC, Measure, find_partners, select_measured
from reports.analysis.statistics import Difference, Summary, compare_cells, correct_differences, summarize_cells
from reports.analysis.table import LEVEL, MARKS, MISSING, STAR, TableCell, find_marks, is_true
from reports.reading.text import format_setting, format_settings, format_spread, shorten_list

AGAINST: Mapping[str, str] = {"compressor": BASELINE}
"""The config keys, with their values, of the runs that others are compared with."""

NUMBERS = ("n", "mean", "std", "low", "high", "boot_low", "boot_high", "median")
"""The attributes of a `Summary` that a record has."""
_COUNTED = (run_directory.FAILED, run_directory.DIVERGED, MISSING)  # have a column each in a table's records


@dataclasses.dataclass(frozen=True)
class CellFigures:
    """The figures of a cell in one measure.

    Attributes:
        best: the better one of the smallest and the largest value.
        absent: by word (`failed`, `missing`, `not measured`), the number of runs that are not in the summary.
        difference: from the baseline; None for the baseline itself and where there is none.
        marked: by the columns in `MARKS` that are known of some run, the number of runs for which they are true.
        is_raced: the number is that of a race, which measures one run for all seeds.
    """

    summary: Summary
    best: float
    absent: Mapping[str, int]
    difference: Difference | None
    marked: Mapping[str, int]
    is_raced: bool = False

    @property
    def is_significant(self) -> bool:
        return self.difference is not None and self.difference.p_holm < LEVEL

    @property
    def is_same(self) -> bool:
        """Whether the cell differs from the baseline by the same amount for all seeds, as message sizes do."""
        gap = self.difference
        return gap is not None and gap.n > 1 and gap.mean != 0 and gap.p != gap.p

    def to_record(self) -> dict[str, Any]:
        """Return the figures for programs, with None for a number that does not exist."""
        summary, gap = self.summary, self.difference
        others = "; ".join(f"{count} {word}" for word, count in self.absent.items() if word not in _COUNTED)
        found = {
            **{name: getattr(summary, name) for name in NUMBERS},
            "best": self.best,
            **{word: self.absent.get(word, 0) for word in _COUNTED},
            "other": others or None,
            "pairs": gap.n if gap else 0,
            "difference": gap.mean if gap else None,
            "difference_low": gap.low if gap else None,
            "difference_high": gap.high if gap else None,
            "p": gap.p if gap else None,
            "p_holm": gap.p_holm if gap else None,
            **self.marked,
        }
        return {key: None if value != value else value for key, value in found.items()}


class Cells:
    """The runs of a table, grouped by cell.

    Attributes:
        runs: as in `Grid.runs`, in the order of the table.
        names: the columns that tell cells apart.
        keys: by cell, in order, the values of `names` as texts.
        partner: by run, the position of the run it is compared with; -1 if there is none.
        expected: the number of runs in a cell unless it says otherwise.
        averaged: the keys, besides the seed, in which the runs of a cell differ.
    """

    def __init__(
        self,
        grid: Grid,
        runs: pd.DataFrame,
        names: Sequence[str],
        against: Mapping[str, str] = AGAINST,
        partner: np.ndarray | None = None,
    ) -> None:
        self.runs, self.names, self.against = runs, tuple(names), against
        numbers: dict[tuple[str, ...], int] = {}
        keys = list(zip(*(format_settings(runs[name]) for name in names), strict=True)) or [()] * len(runs)
        self.numbers = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=int)
        self.keys = list(numbers)
        told = {*names, *(("compressor", *grid.hyper) if "label" in names else ())}
        self.averaged = [
            key
            for key in ("compressor", *grid.hyper, *grid.keys, "workers")
            if key not in told and runs[key].nunique(dropna=False) > 1
        ]
        has_seeds = len(grid.seeds) > 1 and SEED not in names
        sizes = np.bincount(self.numbers, minlength=len(self.keys))
        self._seeds = len(grid.seeds) if has_seeds and not self.averaged else 0
        self.expected = self._seeds or int(max(sizes, default=1))
        self.missing = np.maximum(self._seeds - sizes, 0)
        self.partner = find_baselines(grid, runs, against) if partner is None else partner
        self._few = is_true(runs["few_steps"])
        is_raced = runs["raced_by"].notna().to_numpy(bool)
        self._raced = np.bincount(self.numbers, is_raced, len(self.keys)) > 0
        self._raced_elsewhere = is_raced & (runs["raced_by"] != runs["run"]).fillna(False).to_numpy(bool)
        self._marked = {
            mark: np.bincount(self.numbers, is_true(runs[mark]), len(self.keys)).astype(int)
            for mark in find_marks(runs)
        }

    def compute_figures(self, measure: Measure) -> list[CellFigures]:
        """Return the figures of every cell for a measure."""
        done = select_measured(self.runs, measure.topic).to_numpy(bool)
        values = np.where(done, self.runs[measure.column].to_numpy("float64", na_value=np.nan), np.nan)
        is_timed = measure.topic in (THROUGHPUT_TOPIC, STEP_TOPIC)
        counts_once = self._raced_elsewhere if is_timed else np.zeros(len(values), bool)
        is_known = np.isfinite(values) & ~counts_once
        found = summarize_cells(self._split_by_cell(values[:, None], is_known))
        absent: list[collections.Counter[str]] = [collections.Counter() for _ in self.keys]
        words = self.runs["status"].where(~done, measure.absent)
        is_absent = ~is_known & ~(counts_once & done)
        for number, word in zip(self.numbers[is_absent], words[is_absent], strict=True):
            absent[number][str(word)] += 1
        is_tested = is_known & ~self._few if measure.topic == THROUGHPUT_TOPIC else is_known
        gaps = self._compute_differences(values, is_tested) if measure.is_tested else [None] * len(self.keys)
        cells = []
        for number, (summary, gap) in enumerate(zip(found, gaps, strict=True)):
            if self.missing[number]:
                absent[number][MISSING] = int(self.missing[number])
            best = summary.least if measure.lower_is_better else summary.most
            marked = {mark: int(counts[number]) for mark, counts in self._marked.items()}
            is_raced = is_timed and bool(self._raced[number])
            cells.append(CellFigures(summary, best, absent[number], gap, marked, is_raced))
        return cells

    def get_first_values(self, column: str) -> list[float | None]:
        """Return the first known value of each cell in a column of `runs`; None if there is none."""
        if column not in self.runs:
            return [None] * len(self.keys)
        values = self.runs[column].groupby(self.numbers).first().to_numpy("float64", na_value=np.nan)
        return [float(value) if np.isfinite(value) else None for value in values]

    @functools.cached_property
    def nothing(self) -> CellFigures:
        """The figures of a cell without runs."""
        return CellFigures(
            summarize_cells([[]])[0], np.nan, {MISSING: self._seeds or 1}, None, dict.fromkeys(self._marked, 0)
        )

    def format_figures(self, figures: CellFigures, measure: Measure, with_count: bool = True) -> TableCell:
        """Return figures as the text of a table cell: `0.978 ± 0.003* (n=4, 1 failed)`, or words if there is no number.

        Args:
            with_count: false where a column with `format_count` stands beside it.
        """
        summary = figures.summary
        words = [f"{count} {word}" for word, count in figures.absent.items()] if with_count else []
        marks = [STAR] if figures.is_significant else []
        marks += [MARKS[column] for column, count in figures.marked.items() if count]
        if not summary.n:
            only = list(figures.absent)
            is_plain = len(only) == 1 and (self.expected == 1 or only[0] == MISSING)
            text = ", ".join(only if is_plain or not with_count else words)
            return TableCell(text, text, is_word=True, said=tuple(only))
        if summary.n > 1:
            text = format_spread(summary.mean * measure.scale, summary.std * measure.scale, measure.digits)
        else:
            text = measure.format(summary.mean)
        text += "".join(marks)
        if with_count and (words or (summary.n != self.expected and not figures.is_raced)):
            text += f" ({', '.join([f'n={summary.n}', *words])})"
        return TableCell(summary.mean, text, said=(*marks, *figures.absent))

    def format_count(self, figures: CellFigures) -> TableCell:
        """Return how many runs of a cell have a number, and why the others have none: `4, 1 failed`."""
        text = ", ".join([str(figures.summary.n), *(f"{count} {word}" for word, count in figures.absent.items())])
        return TableCell(figures.summary.n, text, said=tuple(figures.absent))

    def write_remarks(self, is_tested: bool = True) -> list[str]:
        """Return the remarks on a table's cells, which depend on whether its measure is tested."""
        if self.expected == 1:
            return ["every cell is one run (n=1), so of its spread nothing is known"]
        if self.averaged:
            kinds = [
                f"{key} ({', '.join(shorten_list(list(dict.fromkeys(map(_format_value, self.runs[key])))))})"
                for key in self.averaged
            ]
            kinds = shorten_list(kinds)
            said = [f"mean ± standard deviation of n={self.expected} runs, which differ also in {'; '.join(kinds)}"]
        else:
            said = [f"mean ± standard deviation of n={self.expected} seeds, where a cell says no other n"]
        if is_tested and self._has_pair().any():
            but = " but topology" if ALGORITHM in self.against else ""
            said.append(
                f"baseline: {', '.join(f'{key}={text}' for key, text in self.against.items())}, equal in all else{but}"
            )
        return said

    def _split_by_cell(self, values: np.ndarray, is_known: np.ndarray) -> list[np.ndarray]:
        """Return the known rows of `values` for each cell."""
        order = np.argsort(self.numbers[is_known], kind="stable")
        counts = np.bincount(self.numbers[is_known], minlength=len(self.keys))
        parts = np.split(values[is_known][order], np.cumsum(counts)[:-1]) if len(counts) else []
        return [part[:, 0] if values.shape[1] == 1 else part for part in parts]

    def _compute_differences(self, values: np.ndarray, is_tested: np.ndarray) -> list[Difference | None]:
        """Compare the cells with their baselines, over the runs of both that take part in tests."""
        pairs = np.stack([values, values[self.partner]], axis=1)
        has_both = is_tested & is_tested[self.partner] & self._has_pair() & np.isfinite(pairs).all(axis=1)
        return correct_differences(compare_cells(self._split_by_cell(pairs, has_both)))

    def _has_pair(self) -> np.ndarray:
        """Tell for each run whether another run is its baseline."""
        return (self.partner >= 0) & (self.numbers != self.numbers[self.partner])


def choose_baseline(grid: Grid, against: Mapping[str, str] = AGAINST) -> Mapping[str, str]:
    """Return `against`; if it is the default and this sweep has no such baseline, a baseline that exists.

    Algorithms with a compressor each (`sweep.zip`) have no partner that is equal in all but the compressor: they are
    compared with centralised SGD that compresses nothing.
    """
    if against is not AGAINST or ALGORITHM not in grid.keys:
        return against
    partner = find_baselines(grid, grid.runs, AGAINST)
    if ((partner >= 0) & (partner != np.arange(len(partner)))).any():
        return against
    central = {ALGORITHM: SGD, "compressor": BASELINE}
    return central if (find_baselines(grid, grid.runs, central) >= 0).any() else against


def find_baselines(grid: Grid, runs: pd.DataFrame, against: Mapping[str, str]) -> np.ndarray:
    """Return for each run the position of its baseline, which is equal in all keys but those of `against`."""
    own = {*against, *(grid.hyper if "compressor" in against else ())}
    own |= {key for key in grid.keys if ALGORITHM in against and is_method_key(key)}  # another method has other options
    seeds = [SEED] if SEED in runs else []
    match = [key for key in ("compressor", *grid.hyper, *grid.keys, "workers", *seeds) if key not in own]
    is_baseline = pd.Series(True, index=runs.index)
    for key, text in against.items():
        is_baseline &= np.array(format_settings(runs[key])) == text
    return find_partners(runs, match, is_baseline)


def _format_value(value: Any) -> str:
    return format_setting(value) or "null"
