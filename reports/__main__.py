"""`python -m reports PATH [PATH...]`: rebuild the reports of sweeps from their run directories alone."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from reports import collect
from reports.build import Built, build, summarize_dates
from reports.tables import headline, unfinished
from sweep.run import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0; 1 where a report could not be written; 2 where there is nothing to report."""
    options = _parser().parse_args(arguments)
    if sys.stdout is None:  # it was closed before the start: reports are files in the first place
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    # A log's or a terminal's encoding may lack the signs that names and tables have.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        built = []
        for sweep in collect.sweeps(*options.paths):
            built.append(build(sweep, options.plots))
            if not options.quiet:
                _show(built[-1])
            print(_as_typed(built[-1].page), flush=True)
        summarize_dates(built)
    except UsageError as error:
        print(f"reports: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"reports: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reports",
        description="Rebuild summary.csv, tables/, plots/ and report.html of sweeps from their run directories.",
    )
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
    return parser


def _show(built: Built) -> None:
    from reports import terminal

    out = terminal.console()
    terminal.say(out, f"{collect.sweep_name(built.directory)}: {headline(built.grid)}", style="bold")
    chosen = [table for table in built.tables if table.name in ("throughput", "accuracy")]
    failures = unfinished(built.grid)
    terminal.show(out, [*chosen, failures] if failures.rows else chosen)
    for entry in built.left_out:
        terminal.say(out, f"left out: {os.path.relpath(entry.path, built.directory)}: {entry.reason}")
    terminal.say(out, "")


def _as_typed(path: Path) -> str:
    """Relative to the working directory where the path is below it."""
    here, absolute = Path.cwd(), path.resolve()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


if __name__ == "__main__":
    sys.exit(main())
