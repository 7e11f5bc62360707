"""The options for several sweeps: one report of all sweeps together, and a comparison with a baseline."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.errors import UsageError
from gradsweep.sweeps.sweep_locations import OUTPUT

if TYPE_CHECKING:
    from reports.analysis.compare import Comparison  # loads pandas, which --help does without

COMPARED = "compared"  # below output/: reports of several sweeps
_LONGEST = 100  # characters of a directory's name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several sweeps together")
    group.add_argument("--into", type=Path, metavar="DIR", help="where their report goes")
    group.add_argument(
        "--baseline",
        type=Path,
        metavar="PATH",
        help="print what the others do faster, slower, better or worse than this one, beyond the noise of seeds",
    )
    group.add_argument(
        "--ignore", action="append", default=[], metavar="KEY", help="compare also configs that differ in this key"
    )
    group.add_argument(
        "--fail-on",
        metavar="WORD,WORD",
        default="",
        help="exit status 1 where a cell became faster, slower, better, worse or failed",
    )


def check_baseline(options: argparse.Namespace) -> None:
    """Check the options on a baseline (`--ignore`, `--fail-on`), and add the baseline's path to the paths.

    Raises:
        UsageError: such an option is given without `--baseline`, or names an unknown verdict.
    """
    fatal = _list_fatal_verdicts(options)
    for given, name in ((options.ignore, "--ignore"), (fatal, "--fail-on")):
        if given and options.baseline is None:
            raise UsageError(f"{name}: it is about --baseline PATH, which is not given")
    if fatal:
        from reports.analysis.compare import VERDICTS

        if unknown := [word for word in fatal if word not in VERDICTS]:
            raise UsageError(f"--fail-on {unknown[0]}: valid is one or more of {', '.join(VERDICTS)}")
    if options.baseline is not None and options.baseline not in options.paths:
        options.paths.insert(0, options.baseline)


def _list_fatal_verdicts(options: argparse.Namespace) -> list[str]:
    return list(filter(None, options.fail_on.split(",")))


def compare_with_baseline(options: argparse.Namespace, sweeps: Sequence[Path]) -> tuple[Comparison, int]:
    """Compare the sweeps with the baseline; return the comparison, and exit status 1 if a verdict is a failure, else 0.

    Raises:
        UsageError: there are no runs that can be compared.
    """
    from reports.analysis.compare import compare
    from reports.reading import find_runs
    from reports.reading.report import Report

    baseline = {sweep.resolve() for sweep in find_runs.find_sweeps(options.baseline)}
    before, after = ([each for each in sweeps if (each.resolve() in baseline) == side] for side in (True, False))
    if not after:
        raise UsageError(f"--baseline {options.baseline}: there is nothing else; valid is one of several sweeps")
    found = compare(Report(before).merge().runs, Report(after).merge().runs, options.ignore)
    return found, int(any(found.verdicts[verdict] for verdict in _list_fatal_verdicts(options)))


def choose_directory(typed: Path | None, sweeps: Sequence[Path]) -> Path:
    """Return the directory for the joint report of several sweeps.

    Raises:
        UsageError: it lies in a sweep, whose own report would be replaced.
    """
    from reports.reading import find_runs

    if typed is None:
        names = [find_runs.get_sweep_name(sweep).replace("/", "_") for sweep in sweeps]
        name = "+".join(names)
        if len(name) > _LONGEST:
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
            name = f"{names[0][:_LONGEST]}+{len(names) - 1}-more-{digest[:8]}"
        return OUTPUT / COMPARED / name
    if any(find_runs.is_sweep(directory) for directory in (typed, *typed.resolve().parents)):
        raise UsageError(f"--into {typed}: it is in a sweep; valid is a directory that belongs to none")
    return typed
