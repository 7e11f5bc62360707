"""Follow a sweep until it ends: how its runs stand, and the tables of what they have come to so far.

Ctrl-C ends watching, and nothing else. Without a terminal: a line for each run that ends, and the tables at the end.
python -m sweep watch shows the runs alone, at less cost."""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from reports.commands.follow import stamp_sweep
from sweep.status import find, watch

if TYPE_CHECKING:
    from reports.analysis.table import ReportTable

add_arguments = watch.add_arguments
FEW = 10  # least number of lines for the runs and their heading


def run(options: argparse.Namespace) -> int:
    from reports.tables import terminal

    directory, _ = find.find_sweep([options.words])
    status = watch.follow(options, ResultsTable)
    terminal.print_tables(read_tables(directory))
    return status


def read_tables(directory: Path) -> list[ReportTable]:
    """Return the tables of a sweep in its current state."""
    from reports.building.sweep_report import read_report
    from reports.tables.terminal import choose_tables

    return choose_tables(read_report([directory], directory).tables)


class ResultsTable(watch.Table):
    """A live display of a sweep's tables and runs, with at least a few lines for the runs."""

    _stamp = 0
    _tables: tuple[ReportTable, ...] = ()
    _next = 0.0

    def render(self, height: int) -> RenderableType:
        self._refresh()
        shown = Text.from_ansi(_render_text(self._tables, self.console.width))
        most = max(0, height - FEW)
        lines = shown.split("\n", allow_blank=False)[:most]
        return Group(super().render(height - len(lines)), *lines)

    def _refresh(self) -> None:
        """Read the tables again if files have changed; this takes at most half of the time."""
        if time.monotonic() < self._next or (now := stamp_sweep(self.overview.directory)) == self._stamp:
            return
        began = time.monotonic()
        self._stamp, self._tables = now, tuple(read_tables(self.overview.directory))
        self._next = 2 * time.monotonic() - began


def _render_text(made: tuple[ReportTable, ...], width: int) -> str:
    from reports.tables import terminal

    out = Console(file=io.StringIO(), width=width, force_terminal=True, highlight=False, markup=False, emoji=False)
    terminal.print_tables(made, out)
    return out.file.getvalue()  # type: ignore[attr-defined]
