"""Tables for a terminal, a log or a page."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_LOG_WIDTH = 10_000  # what is not a terminal has no edge at which a line would have to be broken


@dataclasses.dataclass(frozen=True)
class Column:
    """A column's heading, and whether the column has numbers, which are aligned right."""

    name: str
    is_number: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of finished text below headings."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def console() -> Console:
    """Return a console on standard output with the width of the terminal; `COLUMNS` and `NO_COLOR` are respected."""
    from rich.console import Console

    class Pipe(Console):
        """A console that raises BrokenPipeError if the reader has closed the pipe; rich's own would end the program."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a log's encoding may lack the signs that papers' authors have
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _LOG_WIDTH
    return Pipe(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_line(text: str, style: str = "", out: Console | None = None) -> None:
    """Print a line as it is, to standard output unless `out` is given."""
    from rich.text import Text

    (out or console()).print(Text(text, style=style))


def print_table(table: Table) -> None:
    """Print a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    rendered = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        rendered.add_column(
            Text(column.name),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            overflow="fold",
        )
    for row in table.rows:
        rendered.add_row(*(Text(cell) for cell in row))
    console().print(rendered)


def format_markdown(table: Table) -> str:
    """Return the table as Markdown, without a newline at its end."""
    heads = "| " + " | ".join(column.name for column in table.columns) + " |"
    rule = "|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|"
    rows = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in table.rows]
    return "\n".join([heads, rule, *rows])
