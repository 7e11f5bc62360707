"""Rebuild summary.csv, tables/, plots/ and report.html of sweeps from their run directories alone."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from reports.commands import choosing

if TYPE_CHECKING:
    from reports.build import Built  # loads pandas, which --help does without


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="a sweep's directory (output/<date>/<time>), a date's (output/<date>) or the root of both (output)",
    )
    parser.add_argument("--quiet", action="store_true", help="print only where the reports are")
    parser.add_argument(
        "--no-plots", dest="plots", action="store_false", help="write no plots, and a page without them"
    )
    choosing.arguments(parser)


def run(options: argparse.Namespace) -> int:
    from reports import collect
    from reports.build import build, summarize_dates

    built = []
    formats, targets, against = choosing.formats(options), choosing.targets(options), choosing.against(options)
    for sweep in collect.sweeps(*options.paths):
        if choosing.is_one(options):
            print(*map(as_typed, choosing.write_one(options, sweep)), sep="\n", flush=True)
            continue
        built.append(build(sweep, options.plots, formats, targets, against))
        if not options.quiet:
            _show(built[-1])
        print(as_typed(built[-1].page), flush=True)
    summarize_dates(built)
    return 0


def _show(built: Built) -> None:
    from reports import collect, terminal
    from reports.tables import headline, unfinished

    out = terminal.console()
    terminal.say(out, f"{collect.sweep_name(built.directory)}: {headline(built.grid)}", style="bold")
    chosen = [table for table in built.tables if table.name in ("throughput", "accuracy")]
    failures = unfinished(built.grid)
    terminal.show(out, [*chosen, failures] if failures.rows else chosen)
    for entry in built.left_out:
        terminal.say(out, f"left out: {os.path.relpath(entry.path, built.directory)}: {entry.reason}")
    terminal.say(out, "")


def as_typed(path: Path) -> str:
    """Relative to the working directory where the path is below it."""
    here, absolute = Path.cwd(), path.resolve()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
