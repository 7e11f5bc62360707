"""A table for people and programs: CSV, Markdown, and cells that the page and the terminal show.

A cell without a number says why: the status of the run, `missing` where the sweep's directory has no
such run, `not measured` where it was done without measuring that.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io

from reports.grid import BASELINE
from reports.text import setting
from sweep import run as rundir

MISSING = "missing"
NOT_MEASURED = "not measured"
NO_BASELINE = "no baseline"

DAGGER = "†"
MEANINGS = {
    DAGGER: "more workers than cores (oversubscribed): it/s and times are not comparable with those of other runs",
    rundir.PENDING: "not started",
    rundir.RUNNING: "not finished when this report was written",
    rundir.DIVERGED: "the loss was no longer a finite number",
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
    """`oversubscribed` are the numbers of workers for which this row's runs had too few cores."""

    cells: tuple[Cell, ...]
    oversubscribed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows for people and programs; the first `headers` columns say what a row is."""

    name: str
    title: str
    columns: tuple[Column, ...]
    headers: int
    rows: tuple[Row, ...]
    caption: str = ""

    @property
    def notes(self) -> list[str]:
        """What the marks and words in this table mean."""
        texts = {cell.text for row in self.rows for cell in row.cells if cell.is_word or cell.text.endswith(DAGGER)}
        used = {DAGGER if text.endswith(DAGGER) else text for text in texts}
        return [f"{mark}: {meaning}" for mark, meaning in MEANINGS.items() if mark in used]

    def csv(self) -> str:
        """Values in full, in the units of `Report.runs`, and the daggers as a column of their own."""
        marked = any(row.oversubscribed for row in self.rows)
        names = [f"{column.name} [{column.unit}]" if column.unit else column.name for column in self.columns]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *(["oversubscribed [workers]"] if marked else [])])
        for row in self.rows:
            writer.writerow(
                [*(setting(cell.value) for cell in row.cells), *([" ".join(row.oversubscribed)] if marked else [])]
            )
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


def _markdown(text: str) -> str:
    """Text that stays text in Markdown: neither a cell's border nor markup."""
    escaped = html.escape(text, quote=False)
    return "".join(f"\\{char}" if char in "\\|`*[" else char for char in escaped)
