"""Write runs that have ended for TensorBoard or MLflow, with the names of live trackers (docs/guide/python.md)."""

from __future__ import annotations

import argparse
import importlib.util
import math
from pathlib import Path
from typing import Any

from gradsweep import errors, run_directory
from gradsweep.cli.tables import console, print_line
from gradsweep.text import plural
from reports.commands.build import format_path

PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}
"""The packages that exports need, by program, whose name its module in reports/exports and the extra have, too.

A module has `export(runs, into)`, which yields each run and whether it was written, or was there already.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=PACKAGES, help="for which program")
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="as for python -m reports PATH")
    parser.add_argument(
        "--into",
        metavar="DIR",
        help="one directory for all sweeps, for mlflow also the address of a server (http://...); "
        "else tensorboard/ and mlflow/ in each sweep's directory",
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="of training whose steps are one point, with their means (1, as of live trackers; 0: each step is one)",
    )
    parser.add_argument("--quiet", action="store_true", help="print only where the exports are")


def run(options: argparse.Namespace) -> int:
    if not 0 <= options.every < math.inf:
        raise errors.bad_value("--every", options.every, "a number of seconds, or 0")
    package = PACKAGES[options.program]
    if importlib.util.find_spec(package) is None:  # before anything is read
        raise errors.UsageError(
            f"export {options.program}: the package {package} is not installed; "
            f"valid after `pip install 'gradsweep[{options.program}]'`"
        )
    from reports.reading.find_runs import find_sweeps

    sweeps = find_sweeps(*options.paths)
    for into, paths in _choose_directories(options.program, options.into, sweeps).items():
        _export(options, into, paths)
    return 0


def _choose_directories(program: str, into: str | None, sweeps: list[Path]) -> dict[Path | str, list[Path]]:
    """Return the directories to write into, with the sweeps that are written into each.

    Raises:
        gradsweep.errors.UsageError: a directory lies in the directory of a run, into which no export is written.
    """
    from reports.reading.find_runs import get_sweep_name

    if into is None:
        return {sweep / program: [sweep] for sweep in sweeps}
    if "://" in into:
        if program != "mlflow":
            raise errors.bad_value("--into", into, "a directory")
        return {into: sweeps}
    place = Path(into)
    for directory in (place.resolve(), *place.resolve().parents):
        if directory.parent.name == run_directory.RUNS and (directory / run_directory.CONFIG).exists():
            raise errors.bad_value("--into", into, "a directory outside those of runs")
    # a store holds many sweeps; event files of sweeps are told apart by their directories
    return {place: sweeps} if program == "mlflow" else {place / get_sweep_name(sweep): [sweep] for sweep in sweeps}


def _export(options: argparse.Namespace, into: Path | str, sweeps: list[Path]) -> None:
    from reports.exports.runs import read_ended_runs
    from reports.reading.report import Report

    out = console()
    report = Report(sweeps).merge() if options.program == "mlflow" else Report(sweeps)  # one run for each signature
    module: Any = importlib.import_module(f"reports.exports.{options.program}")
    written = [is_new for _, is_new in module.export(read_ended_runs(report, options.every), into)]
    if not options.quiet:
        unchanged = f", {written.count(False)} there already" if False in written else ""
        print_line(f"{plural(written.count(True), 'run')} exported{unchanged}")
        for entry in report.left_out:
            print_line(f"left out: {format_path(entry.path)}: {entry.reason}", out=out)
    print(format_path(into) if isinstance(into, Path) else into, flush=True)
