"""Rebuild summary.csv, tables/, plots/ and report.html of sweeps from their run directories alone.

Of several PATHs also one report of all their sweeps together, where runs with the same signature are one: into --into,
by default output/compared/<names of the sweeps>. With --baseline that one only, and what has changed."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.cli import arguments
from gradsweep.cli.tables import console, print_line
from gradsweep.errors import UsageError
from reports.commands import baseline_options, follow, table_options
from reports.tables.file_formats import PICTURES

if TYPE_CHECKING:
    from reports.building.sweep_report import BuiltReport  # loads pandas, which --help does without

PLOTS = "png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="a sweep's directory (output/<date>/<time>), a date's (output/<date>) or the root of both (output)",
    )
    parser.add_argument("--quiet", action="store_true", help="print only where the reports are")
    parser.add_argument(
        "--plots", default=PLOTS, metavar="F,F", help=f"of {', '.join(PICTURES)}; png is always there (default: png)"
    )
    parser.add_argument(
        "--no-plots", dest="plots", action="store_const", const="", help="write no plots, and a page without them"
    )
    parser.add_argument("--follow", action="store_true", help="again whenever something has changed, until all end")
    arguments.add_interval(parser, follow.INTERVAL_S)
    baseline_options.add_arguments(parser)
    table_options.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    from reports.reading import find_runs

    arguments.check_interval(options.interval)
    baseline_options.check_baseline(options)
    pictures = table_options.parse_words("--plots", options.plots, PICTURES)
    _check_together(options)
    options.plots = pictures
    if not options.follow:
        if options.into is not None and options.baseline is None and len(find_runs.find_sweeps(*options.paths)) < 2:
            raise UsageError(f"--into {options.into}: it is for several sweeps, and this is one, whose report is in it")
        return _build(options, find_runs.find_sweeps(*options.paths), options.quiet)
    followed = follow.SweepFollower(lambda: find_runs.find_sweeps(*options.paths))
    status = 0
    for changed in followed.watch(options.interval):
        status = _build(options, changed, options.quiet or followed.is_active)
    return status


def _build(options: argparse.Namespace, changed: Sequence[Path], quiet: bool) -> int:
    """Write the requested reports, of each changed sweep and of all sweeps together; return the exit status."""
    from reports.reading import find_runs

    sweeps = find_runs.find_sweeps(*options.paths)
    if table_options.wants_one_table(options):
        for sweep in changed:
            print(*map(format_path, table_options.write_one_table(options, sweep)), sep="\n", flush=True)
        return 0
    if options.baseline is not None:
        return _build_together(options, sweeps, quiet)
    _build_each(options, changed, quiet)
    return (
        _build_together(options, sweeps, quiet) if len(sweeps) > 1 and (len(options.paths) > 1 or options.into) else 0
    )


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that have no effect in combination with others.

    Raises:
        UsageError: there is such an option; the message names the first.
    """
    if options.interval != follow.INTERVAL_S and not options.follow:
        raise UsageError("--interval: it is about --follow, which is not given")
    if not table_options.wants_one_table(options):
        return
    typed = {"--into": options.into, "--baseline": options.baseline, "--plots": options.plots not in (PLOTS, "")}
    for option, given in typed.items():
        if given:
            raise UsageError(f"{option}: it is about a report; valid is without --rows, --cols, --value and --where")


def _build_each(options: argparse.Namespace, sweeps: Sequence[Path], quiet: bool) -> None:
    from reports.building.sweep_report import build_report, summarize_dates

    formats, targets, against = (
        table_options.parse_formats(options),
        table_options.parse_targets(options),
        table_options.parse_against(options),
    )
    built = []
    for sweep in sweeps:
        built.append(build_report(sweep, options.plots, formats, targets, against))
        if not quiet:
            _print_report(built[-1])
        print(format_path(built[-1].page), flush=True)
    summarize_dates(built)


def _build_together(options: argparse.Namespace, sweeps: Sequence[Path], quiet: bool) -> int:
    """Write one report of all sweeps; if there is a baseline, with tables of the changes since the baseline."""
    from reports.building.sweep_report import read_report, write_report
    from reports.tables import terminal

    comparison, status = (
        baseline_options.compare_with_baseline(options, sweeps) if options.baseline is not None else (None, 0)
    )
    place = baseline_options.choose_directory(options.into, sweeps)
    built = read_report(sweeps, place, table_options.parse_targets(options), table_options.parse_against(options))
    if comparison is not None:
        built = dataclasses.replace(built, more=comparison.tables)
    write_report(built, options.plots, table_options.parse_formats(options))
    if comparison is not None and not quiet:
        for line in comparison.sentences:
            print_line(line, "bold")
        terminal.print_tables(comparison.tables)
        print_line("")
    elif not quiet:
        _print_report(built)
    print(format_path(built.page), flush=True)
    return status


def _print_report(built: BuiltReport) -> None:
    from reports.analysis.answers import write_answers
    from reports.reading import find_runs
    from reports.tables import terminal
    from reports.tables.sweep_tables import build_unfinished_table, write_headline

    out = console()
    answers = write_answers(built.grid)
    headline = f"{find_runs.get_sweep_name(built.directory)}: {write_headline(built.grid)}"
    print_line(headline, "" if answers else "bold")
    for answer in answers:
        print_line(answer, "bold")
    chosen = terminal.choose_tables(built.tables)
    failures = build_unfinished_table(built.grid)
    terminal.print_tables([*chosen, failures] if failures.rows else chosen)
    for entry in built.left_out:
        is_within = Path(os.path.realpath(entry.path.parent)).is_relative_to(os.path.realpath(built.directory))
        path = os.path.relpath(entry.path, built.directory if is_within else Path.cwd())
        print_line(f"left out: {path}: {entry.reason}", out=out)
    print_line("")


def format_path(path: Path) -> str:
    """Return a path relative to the working directory if it is below that, else the absolute path."""
    here, absolute = Path.cwd(), Path(os.path.realpath(path))
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
