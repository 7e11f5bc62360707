"""Print the main tables of a sweep to a terminal or a log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gradsweep.cli.tables import console, print_line
from reports.analysis.table import ReportTable
from reports.reading.text import join_words, shorten_list

_SHOWN = ("race", "throughput", "perplexity", "accuracy")

_GAP = 3  # characters between two columns
_FEW = 8  # characters to which a column of names may be squeezed


def choose_tables(tables: Sequence[ReportTable]) -> list[ReportTable]:
    """Return the tables of a sweep that are printed when its report is written.

    Of runs on texts, that of the perplexity is printed in place of that of the accuracy.
    """
    chosen = {table.name: table for table in tables if table.name in _SHOWN}
    if "perplexity" in chosen:
        chosen.pop("accuracy", None)
    return list(chosen.values())


def print_tables(tables: Sequence[ReportTable], out: Console | None = None) -> None:
    """Print the tables with their titles, then once the meanings of their marks and words."""
    out = out or console()
    for table in tables:
        print_line(f"\n{table.title}", "bold", out)
        if table.spread:
            print_line(table.spread, "dim", out)
        for columns in _split_columns(table, out.width):
            out.print(_render(table, columns, out.width))
        if hidden := [
            column.name for column in table.columns[len(_choose_name_columns(table, out.width)) : table.headers]
        ]:
            print_line(f"no room for {join_words(shorten_list(hidden))}: the table's files have them", "dim", out)
    for note in dict.fromkeys(note for table in tables for note in table.notes):
        print_line(note, "dim", out)


def _split_columns(table: ReportTable, width: int) -> Iterator[list[int]]:
    """Yield groups of columns that fit into `width`; each group begins with the columns that name a row."""
    widths = _measure_widths(table)
    names = _choose_name_columns(table, width)
    room = width - sum(widths[place] + _GAP for place in names)
    chunk: list[int] = []
    for place in range(table.headers, len(table.columns)):
        is_full = sum(widths[other] + _GAP for other in (*chunk, place)) > room
        if chunk and is_full and table.columns[place].is_number:
            yield names + chunk
            chunk = []
        chunk.append(place)
    yield names + chunk


def _choose_name_columns(table: ReportTable, width: int) -> list[int]:
    """Return the columns that name a row; if there are too many, the first ones that fit with a few letters each."""
    widths = _measure_widths(table)
    room = width - min(max(widths[table.headers :], default=0), width // 3)
    needs = itertools.accumulate(min(need, _FEW) + _GAP for need in widths[: table.headers])
    return list(range(max(1, sum(need <= room for need in needs))))


def _measure_widths(table: ReportTable) -> list[int]:
    """Return the width that each column needs to show its cells in one line."""
    return [
        max(cell_len(text) for text in (column.name, f"[{column.shown}]", *(row[place].text for row in table.rows)))
        for place, column in enumerate(table.columns)
    ]


def _render(table: ReportTable, places: Sequence[int], width: int) -> RichTable:
    # A cell that lists many failures may be wider than the terminal; even then no number is cut.
    fits = sum(need + _GAP for place, need in enumerate(_measure_widths(table)) if place in places) - _GAP <= width
    rendered = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in (table.columns[place] for place in places):
        rendered.add_column(
            Text(f"{column.name}\n[{column.shown}]" if column.shown else column.name),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number and (fits or sum(place >= table.headers for place in places) > 1),
            overflow="fold",
            vertical="bottom" if any(column.shown for column in table.columns) else "top",
        )
    for row in table.rows:
        cells = (row[place] for place in places)
        rendered.add_row(*(Text(cell.text, style="yellow" if cell.is_word else "") for cell in cells))
    return rendered
