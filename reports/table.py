"""A table for people and programs: CSV, Markdown, and cells that the page and the terminal show.

A cell without a number says why: the status of the run, `missing` where the sweep's directory has no
such run, `not measured` where it was done without measuring that.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io
from collections.abc import Mapping

from reports.grid import BASELINE
from reports.text import setting
from sweep import run as rundir

MISSING = "missing"
NOT_MEASURED = "not measured"
NO_BASELINE = "no baseline"

DAGGER, DOUBLE_DAGGER = "†", "‡"
MARKS = {
    "oversubscribed": DAGGER,
    "shared_cores": DOUBLE_DAGGER,
}
"""What is written behind the numbers of a run, by the column of `Report.runs` that says why its times are not fair."""

MEANINGS = {
    DAGGER: "more workers than cores (oversubscribed): it/s and times are not comparable with those of other runs",
    DOUBLE_DAGGER: "cores were shared with other runs (sweep.share_cores, or SLURM): "
    "it/s and times are not comparable with any",
    rundir.PENDING: "not started",
    rundir.RUNNING: "not finished when this report was written",
    rundir.DIVERGED: "the loss was no longer a finite number",
    rundir.PRUNED: "ended early, because others of the sweep did better",
    MISSING: "no such run in the sweep's directory",
    NOT_MEASURED: "the run was done without measuring this",
    NO_BASELINE: f"no finished run with compressor={BASELINE} that is equal otherwise",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """`value` is what a program reads, `text` what a person does; a word stands for a number that is not there."""

    value: float | str
    text: str
    is_word: bool = False


@dataclasses.dataclass(frozen=True)
class Column:
    """`unit` belongs to the cells' values, `shown` to their texts."""

    name: str
    unit: str = ""
    shown: str = ""

    @property
    def is_number(self) -> bool:
        return bool(self.unit)


@dataclasses.dataclass(frozen=True)
class Row:
    """`marked` are, by the columns in `MARKS`, the numbers of workers with which this row's runs are marked."""

    cells: tuple[Cell, ...]
    marked: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows for people and programs; the first `headers` columns say what a row is."""

    name: str
    title: str
    columns: tuple[Column, ...]
    headers: int
    rows: tuple[Row, ...]
    caption: str = ""
    remarks: tuple[str, ...] = ()
    """What has to be known of all its runs together."""

    @property
    def notes(self) -> list[str]:
        """What the marks and words in this table mean, after the remarks."""
        cells = {cell for row in self.rows for cell in row.cells}
        used = {cell.text for cell in cells if cell.is_word}
        used |= {mark for cell in cells for mark in cell.text[len(unmarked(cell.text)) :]}
        return [*self.remarks, *(f"{mark}: {meaning}" for mark, meaning in MEANINGS.items() if mark in used)]

    def csv(self) -> str:
        """Values in full, in the units of `Report.runs`, and each kind of dagger as a column of its own."""
        marks = [mark for mark in MARKS if any(row.marked.get(mark) for row in self.rows)]
        names = [f"{column.name} [{column.unit}]" if column.unit else column.name for column in self.columns]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *(f"{mark} [workers]" for mark in marks)])
        for row in self.rows:
            workers = (" ".join(row.marked.get(mark, ())) for mark in marks)
            writer.writerow([*(setting(cell.value) for cell in row.cells), *workers])
        return text.getvalue()

    def markdown(self) -> str:
        from tabulate import tabulate

        rows = [[_markdown(cell.text) for cell in row.cells] for row in self.rows]
        names = [
            f"{_markdown(column.name)} [{column.shown}]" if column.shown else _markdown(column.name)
            for column in self.columns
        ]
        sides = ["right" if column.is_number else "left" for column in self.columns]
        body = tabulate(rows, names, tablefmt="pipe", disable_numparse=True, colalign=sides if rows else None)
        parts = [f"**{_markdown(self.title)}**", body, *map(_markdown, self.notes), _markdown(self.caption)]
        return "\n\n".join(filter(None, parts)) + "\n"


def unmarked(text: str) -> str:
    """Text without the marks at its end."""
    return text.rstrip("".join(MARKS.values()))


def _markdown(text: str) -> str:
    """Text that stays text in Markdown: neither a cell's border nor markup."""
    escaped = html.escape(text, quote=False)
    return "".join(f"\\{char}" if char in "\\|`*[" else char for char in escaped)
