"""Define the tables of a report, whose cells have a value for programs and a text for people.

The page, the terminal and `reports.tables.formats` show these cells. A cell without a number gives the reason: the
status of the run, `no run` if the sweep has no such run, `not measured` if the run was done without measuring it. A
cell of several runs says how many are not in its number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory, timed_steps
from gradsweep.disturbance import OTHERS, SLOWER
from gradsweep.text import plural
from reports.analysis.grid import BASELINE
from reports.reading.networks import find_networked

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MISSING = "missing"
NO_RUN = "no run"
NOT_MEASURED = "not measured"
NO_BASELINE = "no baseline"
NOT_EVALUATED = "not evaluated"
NOT_REACHED = "not reached"
ONE_MODEL = "one model"
NOT_RACED = "not raced"

LEVEL = 0.05
AT_LEAST = ">"
STAR, DAGGER, DOUBLE_DAGGER, SECTION, PILCROW, PARALLEL, LOZENGE, TRIANGLE = "*", "†", "‡", "§", "¶", "‖", "◊", "△"
ALIKE = "≈"
DISTURBED = "disturbed"
MARKS = {
    "oversubscribed": DAGGER,
    "shared_cores": DOUBLE_DAGGER,
    DISTURBED: TRIANGLE,
    "network_off": SECTION,
    "network_cpu_limited": PILCROW,
    "slow_transport": LOZENGE,
    "few_steps": PARALLEL,
}
"""The marks behind the numbers of a run, by the column of `Report.runs` that makes its times unfair (`name_flags`)."""

UNFAIR = {
    "oversubscribed": "more workers than cores",
    "shared_cores": "cores shared with other runs",
    DISTURBED: "disturbed by other programs",
    "network_off": "network not as described",
    "network_cpu_limited": "CPUs slower than the network",
    "slow_transport": "TCP in spite of a faster network",
    "few_steps": "few timed steps",
}
"""The reasons why times cannot be compared, by column of `Report.runs`."""

SPOILT = ("shared_cores", DISTURBED, "few_steps")
"""The columns in `MARKS` of a measurement that went wrong, so that it does not repeat; the others are of settings."""

MEANINGS = {
    STAR: f"differs from the baseline: p < {LEVEL} in a paired t test, Holm-corrected for all tests of the table "
    "(pairs are equal in keys and seed; of times, pairs are equal in keys and closest in time, and the logarithm of "
    "their ratio is tested)",
    DAGGER: "more workers than cores (oversubscribed): it/s and times are not comparable with those of other runs",
    DOUBLE_DAGGER: "cores were shared with other runs (sweep.share_cores, or SLURM): "
    "it/s and times are not comparable with those of other runs",
    TRIANGLE: f"disturbed by other programs: they took more than {100 * OTHERS:.0f} % of the time of its cores, or the "
    f"cores were more than {100 * (SLOWER - 1):.0f} % slower than the best of the sweep for over a tenth of the steps; "
    "it/s and times are not comparable with those of other runs",
    SECTION: "the network was not as it is described: latency or bandwidth, measured before the first step, was off by "
    "more than 10 %",
    PILCROW: "the CPUs, not the network, were the limit when all hosts sent at once: it/s and times are not those of "
    "such a network",
    LOZENGE: "messages went over TCP, though a node has a faster device: it/s and times are not those of its network",
    PARALLEL: f"fewer than {timed_steps.FEW} timed steps, or the warm-up among them: it/s and times of a step say "
    "little, and are not compared",
    AT_LEAST: "lower bound of the mean: the seeds that did not get there count with what they had spent at their end; "
    "not tested",
    ALIKE: "cannot be told apart from the baseline: the 95 % interval has 1 in it",
    NOT_RACED: "the race is still to be run, or left the run out; races/*/ratios.json says which",
    run_directory.PENDING: "not started",
    run_directory.RUNNING: "not finished when this report was written",
    run_directory.DIVERGED: "the loss was no longer a finite number",
    run_directory.PRUNED: "ended early, because others of the sweep did better",
    MISSING: "no runs with these seeds in the sweep's directory",
    NO_RUN: "not a point of the sweep (points_left_out in sweep.yaml says why), or its directory is gone",
    NOT_MEASURED: "the run was done without measuring this",
    NO_BASELINE: f"no finished run with compressor={BASELINE} (or what else is compared with) that is equal otherwise",
    NOT_EVALUATED: "no evaluation by then",
    NOT_REACHED: "the run was done before it got there",
    ONE_MODEL: "all workers have the same model, or their own ones were not judged (algorithm.evaluate_local=false)",
}


def find_marks(runs: pd.DataFrame) -> list[str]:
    """Return those columns of `MARKS` that are known for some run; those on networks only if a network was measured."""
    known = runs[[*MARKS, *name_flags((DISTURBED,), True)]].notna().any()
    return [mark for mark, column in zip(MARKS, name_flags(MARKS, True), strict=True) if known[mark] or known[column]]


def name_flags(marks: Iterable[str], of_training: bool) -> list[str]:
    """Return the columns of `Report.runs` that say whether these marks hold, for times of a race or of the training.

    Others may have disturbed one and not the other.

    Args:
        marks: columns in `MARKS`.
        of_training: the times are those of the training also if the run raced.
    """
    return [f"training_{mark}" if of_training and mark == DISTURBED else mark for mark in marks]


def is_true(marked: pd.Series) -> np.ndarray:
    """Return a column of flags as an array, in which an unknown flag is false."""
    return marked.fillna(False).to_numpy(bool)


def is_marked(runs: pd.DataFrame, marks: Iterable[str] = MARKS, of_training: bool = False) -> np.ndarray:
    """Tell for each run whether one of these marks holds for it; `of_training` as for `name_flags`."""
    return runs[name_flags(marks, of_training)].fillna(False).to_numpy(bool).any(axis=1)


def find_uneven(runs: pd.DataFrame) -> np.ndarray:
    """Tell for each run whether its heat of a race was disturbed, and so that the heat's runs were not slowed equally.

    Slow cores slow all computation of a race by one factor, but not a network. Other processes take the cores from
    single ranks, for which the others wait at their next exchange: runs with more exchanges lose more.
    """
    is_crowded = runs["ratio_cores_of_others"].gt(OTHERS).fillna(False).to_numpy(bool)
    return is_true(runs["ratio_disturbed"]) & (is_crowded | find_networked(runs))


def name_quotient_flag(column: str, mark: str) -> str:
    """Return the column that says whether a mark holds for a quotient of two runs, such as the speed-up."""
    return f"{column}_{mark}"


def flag_quotients(runs: pd.DataFrame, column: str, partner: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of `name_quotient_flag` for a quotient of each run and its partner.

    A quotient has the marks of both. If both took turns in a race, a disturbance that slowed them equally is no mark
    of it.

    Args:
        column: of the quotients.
        partner: for each run, the position of the run that it is divided by; -1 without one.
    """
    found = {}
    for mark in MARKS:
        here = is_true(runs[mark])
        if mark == DISTURBED and len(runs):
            races = runs[["sweep", "race"]].astype("string").fillna("").to_numpy(object)
            is_one = (partner >= 0) & (races[:, 1] != "") & (races == races[partner]).all(axis=1)
            here = (is_one & find_uneven(runs)) | (~is_one & here)
        found[name_quotient_flag(column, mark)] = here | ((partner >= 0) & here[partner]) if len(runs) else here
    return found


def count_marked(runs: pd.DataFrame, marks: Iterable[str] = MARKS, of_training: bool = False) -> str:
    """Return how many of these runs have one of these marks, and why: `3 runs (1 few timed steps, 2 ...)`.

    Args:
        of_training: as for `name_flags`.
    """
    flags = zip(marks, name_flags(marks, of_training), strict=True)
    counts = {mark: int(is_true(runs[column]).sum()) for mark, column in flags}
    reasons = ", ".join(f"{count} {UNFAIR[column]}" for column, count in counts.items() if count)
    return f"{plural(int(is_marked(runs, marks, of_training).sum()), 'run')} ({reasons})"


@dataclasses.dataclass(frozen=True)
class TableCell:
    """A table cell with a `value` for programs and a `text` for people.

    `is_word` is true if the text is a word and not a number. `said` lists the marks and words in the text that need a
    note below the table.
    """

    value: float | str
    text: str
    is_word: bool = False
    said: tuple[str, ...] = ()


def make_text_cell(text: str) -> TableCell:
    """Return a cell whose value is its text."""
    return TableCell(text, text)


@dataclasses.dataclass(frozen=True)
class TableColumn:
    """A column of a table: its heading, the `unit` of its cells' values, and `shown`, the unit of their texts."""

    name: str
    unit: str = ""
    shown: str = ""

    @property
    def is_number(self) -> bool:
        return bool(self.unit)


@dataclasses.dataclass(frozen=True)
class ReportTable:
    """A table with texts for people and values for programs; the first `headers` columns name a row.

    Attributes:
        caption: the settings that all its runs share and that a reader has to know.
        settings: all settings that all its runs share; files have them as a comment.
        spread: what a ± or an interval in its cells is; it stands beside the title.
        remarks: notes on all its runs together.
        records: for programs, unrounded and in the units of `Report.runs`: one for each cell, or for each run in a
            table with a row for each run. All have the same keys. None stands for an unknown value.
        topic: the section of the report to which it belongs, one of `measures.TOPICS`.
    """

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    headers: int
    rows: tuple[tuple[TableCell, ...], ...]
    caption: str = ""
    remarks: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    topic: str = ""
    settings: str = ""
    spread: str = ""

    @property
    def heading(self) -> str:
        """The title, with what a ± in the cells is."""
        return f"{self.title} ({self.spread})" if self.spread else self.title

    @property
    def notes(self) -> list[str]:
        """The remarks, and then the meanings of the marks and words in this table."""
        used = {word for row in self.rows for cell in row for word in cell.said}
        return [*self.remarks, *(f"{mark}: {meaning}" for mark, meaning in MEANINGS.items() if mark in used)]
