"""Rebuild summary.csv, tables/, plots/ and report.html of sweeps from their run directories alone.

Of several PATHs also one report of all their sweeps together, where runs with the same signature are one: into --into,
by default output/compared/<names of the sweeps>."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
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
    parser.add_argument("--follow", action="store_true", help="again whenever something has changed, until all end")
    following.add_interval(parser)


def run(options: argparse.Namespace) -> int:
    from reports import collect

    following.check_interval(options)
    if not options.follow:
        _build(options, collect.sweeps(*options.paths))
        return 0
    followed = following.Followed(lambda: collect.sweeps(*options.paths))
    for changed in followed.changes(options.interval):
        _build(options, changed, quiet=options.quiet or followed.is_active)
    return 0


def _build(options: argparse.Namespace, changed: Sequence[Path], quiet: bool | None = None) -> None:
    """Write the reports of the sweeps that have changed, and where several are asked for, that of all together."""
    from reports import collect
    from reports.build import build, read, summarize_dates, write

    quiet = options.quiet if quiet is None else quiet
    built = []
    for sweep in changed:
        built.append(build(sweep, options.plots))
        _show(built[-1], quiet)
    summarize_dates(built)
    sweeps = collect.sweeps(*options.paths)
    if len(sweeps) > 1 and (len(options.paths) > 1 or options.into):
        _show(write(read(sweeps, _into(options.into, sweeps)), options.plots), quiet)


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
