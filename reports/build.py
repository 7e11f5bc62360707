"""Writes what a report consists of into the directories of sweeps and dates, never into that of a run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports import collect
from reports.cells import AGAINST
from reports.collect import LeftOut, Report
from reports.formats import DEFAULT, save
from reports.grid import Grid, lay_out
from reports.pivot import check_against
from reports.table import Table
from reports.tables import tables
from sweep import run as rundir

TABLES = "tables"
PLOTS = "plots"
PAGE = "report.html"

_INSTANT = "%Y-%m-%dT%H:%M:%S.%f%z"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclasses.dataclass(frozen=True)
class Built:
    """The report of one sweep, as it was written."""

    directory: Path
    report: Report
    grid: Grid
    tables: Sequence[Table]

    @property
    def page(self) -> Path:
        return self.directory / PAGE

    @property
    def left_out(self) -> list[LeftOut]:
        return self.report.left_out


def build(
    directory: Path,
    with_plots: bool = True,
    formats: Sequence[str] = DEFAULT,
    targets: Sequence[float] | None = None,
    against: Mapping[str, str] = AGAINST,
) -> Built:
    """Write summary.csv, tables/, plots/ and report.html of one sweep from its run directories.

    Args:
        formats: of the tables, from `formats.FORMATS`.
        targets, against: see `tables.tables`.
    """
    from reports import page

    report = Report([directory])
    info = report.info(directory)
    grid = lay_out(report.runs, swept(info))
    check_against(grid, against)
    made = tables(grid, report.epochs, targets, against)
    _write(directory / rundir.SUMMARY, _summary(report.runs, directory))
    (directory / TABLES).mkdir(exist_ok=True)
    for table in made:
        save(table, directory / TABLES, formats)
    pictures = {}
    if with_plots:
        from reports import plots

        (directory / PLOTS).mkdir(exist_ok=True)
        pictures = plots.save_all(plots.plots(grid, report.epochs), directory / PLOTS)
    _write(
        directory / PAGE,
        page.render(directory, grid, made, pictures, info, report.left_out, report.epochs, report.profile),
    )
    return Built(directory, report, grid, made)


def swept(info: Mapping[str, Any]) -> list[str]:
    """The keys that a sweep.yaml says were swept."""
    found = info.get("swept")
    return list(map(str, found)) if isinstance(found, list) else []


def summarize_dates(built: Sequence[Built]) -> None:
    """Write the summary.csv of each date that has one of these sweeps: every run of all its sweeps."""
    known = {one.directory.resolve(): one.report for one in built}
    for date in dict.fromkeys(directory.parent for directory in known):
        if _DATE.fullmatch(date.name):  # elsewhere the folder is the user's own
            sweeps = list(dict.fromkeys(path.resolve() for path in sorted(date.iterdir()) if collect.is_sweep(path)))
            runs = [(known.get(sweep) or Report([sweep])).runs for sweep in sweeps]
            _write(date / rundir.SUMMARY, _summary(pd.concat(runs, ignore_index=True), date))


def _summary(runs: pd.DataFrame, directory: Path) -> str:
    """`Report.runs` as CSV, with the run directories relative to where the file lies."""
    here = directory.resolve()
    places = [os.path.relpath(Path(place).resolve(), here) for place in runs["directory"]]
    return runs.assign(directory=places).to_csv(index=False, lineterminator="\n", date_format=_INSTANT)


def _write(path: Path, text: str) -> None:
    """Replace `path`; lone surrogates, of which paths may consist, become `?`."""
    rundir.write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
