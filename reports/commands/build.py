"""Rebuild summary.csv, tables/, plots/ and report.html of sweeps from their run directories alone.

Of several PATHs also one report of all their sweeps together, where runs with the same signature are one: into --into,
by default output/compared/<names of the sweeps>. With --baseline that one only, and what has changed."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from reports.commands import following
from sweep.places import OUTPUT
from sweep.run import UsageError

if TYPE_CHECKING:
    from reports.build import Built  # loads pandas, which --help does without

COMPARED = "compared"  # below output/: reports of several sweeps
_LONGEST = 100  # characters of a directory's name


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
    parser.add_argument("--into", type=Path, metavar="DIR", help="where the report of several sweeps together goes")
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="PATH",
        help="print what the others do faster, slower, better or worse than this one, beyond the noise of seeds",
    )
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="KEY", help="compare also configs that differ in this key"
    )
    parser.add_argument(
        "--fail-on",
        metavar="WORD,...",
        default="",
        help="exit status 1 where a cell became faster, slower, better, worse or failed",
    )
    parser.add_argument("--follow", action="store_true", help="again whenever something has changed, until all end")
    following.add_interval(parser)


def run(options: argparse.Namespace) -> int:
    from reports import collect

    following.check_interval(options)
    fatal = _fatal(options)
    if options.baseline is not None and options.baseline not in options.paths:
        options.paths.insert(0, options.baseline)
    if not options.follow:
        return _build(options, collect.sweeps(*options.paths), fatal)
    followed = following.Followed(lambda: collect.sweeps(*options.paths))
    status = 0
    for changed in followed.changes(options.interval):
        status = _build(options, changed, fatal, quiet=options.quiet or followed.is_active)
    return status


def _fatal(options: argparse.Namespace) -> set[str]:
    """The verdicts that make the exit status 1."""
    fatal = set(filter(None, options.fail_on.split(",")))
    for given, name in ((options.ignore, "--ignore"), (fatal, "--fail-on")):
        if given and options.baseline is None:
            raise UsageError(f"{name}: it is about --baseline PATH, which is not given")
    if fatal:
        from reports.compare import VERDICTS

        if unknown := sorted(fatal.difference(VERDICTS)):
            raise UsageError(f"--fail-on {unknown[0]}: valid is one or more of {', '.join(VERDICTS)}")
    return fatal


def _build(options: argparse.Namespace, changed: Sequence[Path], fatal: Set[str], quiet: bool | None = None) -> int:
    """Write the reports of the sweeps that have changed, and where several are asked for, that of all together.

    Returns the exit status: 1 where a verdict is `fatal`.
    """
    from reports import collect
    from reports.build import build, read, summarize_dates, write

    quiet = options.quiet if quiet is None else quiet
    if options.baseline is not None:
        return _compare(options, fatal, quiet)
    built = []
    for sweep in changed:
        built.append(build(sweep, options.plots))
        _show(built[-1], quiet)
    summarize_dates(built)
    sweeps = collect.sweeps(*options.paths)
    if len(sweeps) > 1 and (len(options.paths) > 1 or options.into):
        _show(write(read(sweeps, _into(options.into, sweeps)), options.plots), quiet)
    return 0


def _compare(options: argparse.Namespace, fatal: Set[str], quiet: bool) -> int:
    """Write one report of all sweeps, with tables of what differs between the baseline and the others."""
    from reports import collect, terminal
    from reports.build import read, write
    from reports.collect import Report
    from reports.compare import compare

    sweeps = collect.sweeps(*options.paths)
    baseline = {sweep.resolve() for sweep in collect.sweeps(options.baseline)}
    before, after = ([each for each in sweeps if (each.resolve() in baseline) == side] for side in (True, False))
    if not after:
        raise UsageError(f"--baseline {options.baseline}: there is nothing else; valid is one of several sweeps")
    found = compare(Report(before).merged().runs, Report(after).merged().runs, options.ignore)
    built = read(sweeps, _into(options.into, sweeps))
    built = write(dataclasses.replace(built, tables=[*built.tables, *found.tables]), options.plots)
    if not quiet:
        out = terminal.console()
        for line in found.sentences:
            terminal.say(out, line, style="bold")
        terminal.show(out, found.tables)
        terminal.say(out, "")
    print(as_typed(built.page), flush=True)
    return int(any(found.verdicts[verdict] for verdict in fatal))


def _into(typed: Path | None, sweeps: Sequence[Path]) -> Path:
    """Where the report of several sweeps goes.

    Raises:
        UsageError: that is in a sweep, whose own report it would replace.
    """
    from reports import collect

    if typed is None:
        names = [collect.sweep_name(sweep).replace("/", "_") for sweep in sweeps]
        name = "+".join(names)
        if len(name) > _LONGEST:
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
            name = f"{names[0][:_LONGEST]}+{len(names) - 1}-more-{digest[:8]}"
        return OUTPUT / COMPARED / name
    if any(collect.is_sweep(directory) for directory in (typed, *typed.resolve().parents)):
        raise UsageError(f"--into {typed}: it is in a sweep; valid is a directory that belongs to none")
    return typed


def _show(built: Built, quiet: bool) -> None:
    if not quiet:
        _summarize(built)
    print(as_typed(built.page), flush=True)


def _summarize(built: Built) -> None:
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
