"""Group runs that differ only in their seed into cells, and compare each cell with a baseline."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gradsweep import run_directory
from gradsweep.text import plural
from reports.analysis.grid import ALGORITHM, BASELINE, SEED, SGD, Grid, is_method_key
from reports.analysis.measures import (
    SPEEDUP,
    SPENT,
    THROUGHPUT,
    Measure,
    find_partners,
    select_measured,
    select_once,
)
from reports.analysis.statistics import (
    Difference,
    Summary,
    compare_cells,
    compare_ratios,
    correct_differences,
    summarize_cells,
)
from reports.analysis.table import (
    AT_LEAST,
    LEVEL,
    MARKS,
    MISSING,
    NO_RUN,
    STAR,
    TableCell,
    count_marked,
    find_marks,
    is_marked,
    is_true,
    name_flags,
    name_quotient_flag,
)
from reports.analysis.time_pairs import TimePairs
from reports.reading.text import format_setting, format_settings, format_spread, shorten_list

AGAINST: Mapping[str, str] = {"compressor": BASELINE}
"""The config keys, with their values, of the runs that others are compared with."""

NUMBERS = ("n", "mean", "std", "low", "high", "boot_low", "boot_high", "median")
"""The attributes of a `Summary` that a record has."""
RATE_COLUMNS = (THROUGHPUT.column, "samples_per_second")
"""The columns of `Report.runs` that have an interval of their own in each run."""
_PLAIN = ("label", "compressor")  # columns whose values need no name
_COUNTED = (run_directory.FAILED, run_directory.DIVERGED, MISSING)  # have a column each in a table's records


@dataclasses.dataclass(frozen=True)
class CellFigures:
    """The figures of a cell in one measure.

    Attributes:
        summary: the statistics over the cell's runs; for a single throughput, the interval is that of the run itself.
        best: the best value of a run: the largest, or the smallest if lower is better.
        absent: the number of runs that are not in the summary, by reason (`failed`, `missing`, `not measured`).
        difference: from the baseline; None for the baseline itself and for a cell without a baseline.
        marked: the number of runs that have a mark, by the columns in `MARKS` that are known for some run.
        bound: a lower bound of the mean, if some runs did not reach a target; NaN if all or none did.
        is_raced: the number was measured by a race, which measures one run for all seeds.
    """

    summary: Summary
    best: float
    absent: Mapping[str, int]
    difference: Difference | None
    marked: Mapping[str, int]
    is_raced: bool = False
    bound: float = math.nan

    @property
    def is_bound(self) -> bool:
        """Whether only a lower bound of the mean is known."""
        return not math.isnan(self.bound)

    @property
    def is_significant(self) -> bool:
        return self.difference is not None and self.difference.p_holm < LEVEL

    @property
    def is_same(self) -> bool:
        """Whether the cell differs from the baseline by the same amount for all seeds, as sizes of messages do."""
        gap = self.difference
        return gap is not None and gap.n > 1 and gap.mean != 0 and gap.p != gap.p

    def to_record(self) -> dict[str, Any]:
        """Return the figures as a record for programs, with None for a number that does not exist."""
        summary, gap = self.summary, self.difference
        told = (*_COUNTED, NO_RUN)
        others = "; ".join(f"{count} {word}" for word, count in self.absent.items() if word not in told)
        found = {
            "n": summary.n,
            **{name: None if self.is_bound else getattr(summary, name) for name in NUMBERS[1:]},
            "best": self.best,
            **{word: self.absent.get(word, 0) for word in _COUNTED},
            MISSING: self.absent.get(MISSING, 0) + self.absent.get(NO_RUN, 0),
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
        keys: the values of `names` of each cell, as texts, in the order of the table.
        partner: for each run, the position of the run that is its baseline; -1 if there is none.
        expected: the number of runs of a cell whose text does not state another number.
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
        match, is_baseline = _match_baselines(grid, runs, against)
        self._pairs = TimePairs(runs, match, is_baseline, self.numbers)
        is_raced = runs["raced_by"].notna().to_numpy(bool)
        self._raced = np.bincount(self.numbers, is_raced, len(self.keys)) > 0
        self._marks = find_marks(runs)

    def compute_figures(self, measure: Measure) -> list[CellFigures]:
        """Return the figures of every cell for a measure."""
        done = select_measured(self.runs, measure.column).to_numpy(bool)
        values = np.where(done, self.runs[measure.column].to_numpy("float64", na_value=np.nan), np.nan)
        has_value = np.isfinite(values)
        told = self.runs[["status", "sweep", "race", "raced_by", measure.column]].assign(cell=self.numbers)
        is_known = has_value & select_once(told, measure.column).to_numpy(bool)
        found = summarize_cells(self._split_by_cell(values[:, None], is_known))
        if measure.column in RATE_COLUMNS:
            found = self._add_intervals(found, is_known)
        absent: list[collections.Counter[str]] = [collections.Counter() for _ in self.keys]
        words = self.runs["status"].where(~done, measure.absent)
        for number, word in zip(self.numbers[~has_value], words[~has_value], strict=True):
            absent[number][str(word)] += 1
        bounds = self._find_bounds(measure, values)
        is_whole = ~np.isfinite(bounds)[self.numbers]
        is_tested = is_known & is_whole & ~is_marked(self.runs, measure.marks, measure.is_of_training)
        gaps = self._compute_differences(measure, values, is_tested) if measure.is_tested else [None] * len(self.keys)
        marks = self._count_marks(measure)
        cells = []
        for number, (summary, gap) in enumerate(zip(found, gaps, strict=True)):
            if self.missing[number]:
                absent[number][MISSING] = int(self.missing[number])
            best = summary.least if measure.lower_is_better else summary.most
            marked = {mark: int(counts[number]) for mark, counts in marks.items()}
            is_raced = not measure.is_of_training and bool(self._raced[number])
            cells.append(CellFigures(summary, best, absent[number], gap, marked, is_raced, float(bounds[number])))
        return cells

    def _count_marks(self, measure: Measure) -> dict[str, np.ndarray]:
        """Return for each mark how many runs of each cell have it, (cells,)."""
        own = name_flags(self._marks, measure.is_of_training)
        of_quotient = [name_quotient_flag(measure.column, mark) for mark in self._marks]
        columns = [quotient if quotient in self.runs else flag for flag, quotient in zip(own, of_quotient, strict=True)]
        return {
            mark: np.bincount(self.numbers, is_true(self.runs[column]), len(self.keys))
            for mark, column in zip(self._marks, columns, strict=True)
        }

    def _find_bounds(self, measure: Measure, values: np.ndarray) -> np.ndarray:
        """Return a lower bound of each cell's mean cost of a target, (cells,): NaN if all or no runs reached it.

        A run that did not get there counts with what it had spent at its end.
        """
        found = np.full(len(self.keys), np.nan)
        if f"{measure.column}_{SPENT}" not in self.runs:
            return found
        spent = self.runs[f"{measure.column}_{SPENT}"].to_numpy("float64", na_value=np.nan)
        for number in range(len(self.keys)):
            here = self.numbers == number
            own = values[here]
            if np.isfinite(own).any() and np.isfinite(spent[here][np.isnan(own)]).any():
                found[number] = np.nanmean(np.where(np.isnan(own), spent[here], own))
        return found

    def find_pairs(self, is_chosen: np.ndarray) -> list[np.ndarray]:
        """Return for each cell the pairs (run, baseline) among the chosen runs that were closest in time
        (`TimePairs.find`).
        """
        return self._pairs.find(is_chosen)

    def name_cell(self, number: int) -> str:
        """Return the name of a cell, such as `qsgd, 4 workers`."""
        words = []
        for name, text in zip(self.names, self.keys[number], strict=True):
            value = text or "null"
            words.append(
                plural(value, "worker") if name == "workers" else value if name in _PLAIN else f"{name}={value}"
            )
        return ", ".join(words)

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
            summarize_cells([[]])[0], np.nan, {NO_RUN: self._seeds or 1}, None, dict.fromkeys(self._marks, 0)
        )

    def format_figures(self, figures: CellFigures, measure: Measure, with_count: bool = True) -> TableCell:
        """Return figures as a table cell with a text such as `0.978 ± 0.003* (n=4, 1 failed)`, or words if there is no
        number.

        Args:
            with_count: false if a neighbouring column shows the counts (`format_count`).
        """
        summary = figures.summary
        words = [f"{count} {word}" for word, count in figures.absent.items()] if with_count else []
        marks = [STAR] if figures.is_significant else []
        marks += [MARKS[column] for column, count in figures.marked.items() if count and column in measure.marks]
        if not summary.n:
            only = list(figures.absent)
            is_plain = len(only) == 1 and (self.expected == 1 or only[0] == NO_RUN)
            text = ", ".join(only if is_plain or not with_count else words)
            return TableCell(text, text, is_word=True, said=tuple(only))
        if figures.is_bound:
            marks = [AT_LEAST, *marks]
            text = f"{AT_LEAST} {measure.format(figures.bound)}"
        elif summary.n > 1:
            text = format_spread(summary.mean * measure.scale, summary.std * measure.scale, measure.digits)
        elif np.isfinite(summary.high - summary.low):
            half = (summary.high - summary.low) / 2
            text = format_spread(summary.mean * measure.scale, half * measure.scale, measure.digits)
        else:
            text = measure.format(summary.mean)
        text += "".join(mark for mark in marks if mark != AT_LEAST)
        if with_count and (words or (summary.n != self.expected and not figures.is_raced)):
            text += f" ({', '.join([f'n={summary.n}', *words])})"
        return TableCell(figures.bound if figures.is_bound else summary.mean, text, said=(*marks, *figures.absent))

    def format_count(self, figures: CellFigures) -> TableCell:
        """Return how many runs of a cell have a number, and why the others have none: `4, 1 failed`."""
        text = ", ".join([str(figures.summary.n), *(f"{count} {word}" for word, count in figures.absent.items())])
        return TableCell(figures.summary.n, text, said=tuple(figures.absent))

    def describe_spread(self, measure: Measure | None = None) -> str:
        """Return what a ± in the cells of a table of this measure is; None: of several measures."""
        own = self._describe_intervals() if measure is not None and measure.column in RATE_COLUMNS else ""
        if self.expected == 1:
            return f"single runs, n=1; {own}" if own else "single runs, n=1"
        if self.averaged:
            kinds = [
                f"{key} ({', '.join(shorten_list(list(dict.fromkeys(map(_format_value, self.runs[key])))))})"
                for key in self.averaged
            ]
            kinds = shorten_list(kinds)
            said = f"mean ± standard deviation of n={self.expected} runs, which differ also in {'; '.join(kinds)}"
        else:
            said = f"mean ± standard deviation of n={self.expected} seeds"
        return f"{said}; of a single run, {own}" if own else said

    def write_remarks(self, measure: Measure) -> list[str]:
        """Return the remarks below a table of this measure on its tests."""
        said: list[str] = []
        if self.expected == 1:
            return said
        if measure.is_tested and self._has_pair().any():
            refused = measure.marks, measure.is_of_training
            marked = is_marked(self.runs, *refused) & select_measured(self.runs, measure.column)
            if marked.any():
                said.append(f"marked times are not tested: {count_marked(self.runs[marked], *refused)}")
            but = " but topology" if ALGORITHM in self.against else ""
            said.append(
                f"baseline: {', '.join(f'{key}={text}' for key, text in self.against.items())}, equal in all else{but}"
            )
        return said

    def _split_by_cell(self, values: np.ndarray, is_known: np.ndarray) -> list[np.ndarray]:
        """Return for each cell the rows of `values` that are known."""
        order = np.argsort(self.numbers[is_known], kind="stable")
        counts = np.bincount(self.numbers[is_known], minlength=len(self.keys))
        parts = np.split(values[is_known][order], np.cumsum(counts)[:-1]) if len(counts) else []
        return [part[:, 0] if values.shape[1] == 1 else part for part in parts]

    def _describe_intervals(self) -> str:
        """Return a sentence on the ± of throughputs that a single run has measured; empty if there is no such
        throughput.
        """
        is_raced = self.runs["raced_by"].notna().to_numpy(bool)
        single = np.bincount(self.numbers, minlength=len(self.keys))[self.numbers] == 1
        known = self.runs["throughput_low"].notna().to_numpy(bool) & (is_raced | single)
        kinds = (("blocks of its own timed steps", ~is_raced), ("the rounds of its race", is_raced))
        over = [words for words, which in kinds if (known & which).any()]
        return f"± is half the 95 % interval over {' or '.join(over)}" if over else ""

    def _add_intervals(self, found: Sequence[Summary], is_known: np.ndarray) -> list[Summary]:
        """Return the summaries; for a cell with a single throughput, take the interval from the steps of its run."""
        ends = ["throughput_low", "throughput_high"]
        ratios = self.runs[ends].div(self.runs[THROUGHPUT.column], axis=0).to_numpy("float64", na_value=np.nan)
        of_cells = self._split_by_cell(ratios, is_known)
        return [
            dataclasses.replace(summary, low=summary.mean * of[0][0], high=summary.mean * of[0][1])
            if summary.n == 1
            else summary
            for summary, of in zip(found, of_cells, strict=True)
        ]

    def _compute_differences(
        self, measure: Measure, values: np.ndarray, is_tested: np.ndarray
    ) -> list[Difference | None]:
        """Return the differences of the cells from their baselines, over the runs of both that are tested."""
        if measure.is_time:
            of_speedup = measure.column == SPEEDUP.column  # its baselines are those of its runs' seeds
            if of_speedup:
                values = self.runs[THROUGHPUT.column].to_numpy("float64", na_value=np.nan)
            in_time = [values[places] for places in self.find_pairs(is_tested)]
            if of_speedup:
                in_time = [both / both[:, 1:] for both in in_time]
            return correct_differences(compare_ratios(in_time))
        pairs = np.stack([values, values[self.partner]], axis=1)
        has_both = is_tested & is_tested[self.partner] & self._has_pair() & np.isfinite(pairs).all(axis=1)
        return correct_differences(compare_cells(self._split_by_cell(pairs, has_both)))

    def _has_pair(self) -> np.ndarray:
        """Tell for each run whether it has a baseline in another cell."""
        return (self.partner >= 0) & (self.numbers != self.numbers[self.partner])


def choose_baseline(grid: Grid, against: Mapping[str, str] = AGAINST) -> Mapping[str, str]:
    """Return `against`, or another baseline if `against` is the default and no run of this sweep has that baseline.

    If each algorithm was swept with a compressor of its own (`sweep.zip`), no two runs differ in their compressor only.
    Then the baseline is centralised SGD without compression. Runs of scripts are compared with those that have `none`
    for the first swept key of which some run has it.
    """
    if against is AGAINST and grid.is_of_scripts:
        key = next((key for key in grid.keys if BASELINE in format_settings(grid.runs[key])), None)
        return against if key is None else {key: BASELINE}
    if against is not AGAINST or ALGORITHM not in grid.keys:
        return against
    partner = find_baselines(grid, grid.runs, AGAINST)
    if ((partner >= 0) & (partner != np.arange(len(partner)))).any():
        return against
    central = {ALGORITHM: SGD, "compressor": BASELINE}
    return central if (find_baselines(grid, grid.runs, central) >= 0).any() else against


def find_baselines(grid: Grid, runs: pd.DataFrame, against: Mapping[str, str]) -> np.ndarray:
    """Return for each run the position of its baseline: a run with the values `against`, else with equal keys."""
    match, is_baseline = _match_baselines(grid, runs, against)
    return find_partners(runs, [*match, *([SEED] if SEED in runs else [])], is_baseline)


def _match_baselines(grid: Grid, runs: pd.DataFrame, against: Mapping[str, str]) -> tuple[list[str], pd.Series]:
    """Return the keys, without the seed, in which a run must equal its baseline, and which runs can be baselines."""
    own = {*against, *(grid.hyper if "compressor" in against else ())}
    own |= {key for key in grid.keys if ALGORITHM in against and is_method_key(key)}  # another method has other options
    is_baseline = pd.Series(True, index=runs.index)
    for key, text in against.items():
        is_baseline &= np.array(format_settings(runs[key])) == text
    return [key for key in ("compressor", *grid.hyper, *grid.keys, "workers") if key not in own], is_baseline


def _format_value(value: Any) -> str:
    return format_setting(value) or "null"
