"""Build reports, and write them into the directories of sweeps and dates, never into the directory of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gradsweep import errors, files, run_directory
from gradsweep.cli import spreadsheets
from reports.analysis.cells import AGAINST, choose_baseline
from reports.analysis.grid import Grid, lay_out_runs
from reports.analysis.measures import MEASURES
from reports.analysis.table import ReportTable
from reports.reading.find_runs import is_sweep
from reports.reading.races import read_notes
from reports.reading.report import Report
from reports.reading.run_files import LeftOut
from reports.tables import file_formats
from reports.tables.formats import save_table
from reports.tables.pivot import check_against
from reports.tables.race_table import build_race_table
from reports.tables.sweep_tables import build_tables

if TYPE_CHECKING:
    from reports.plots.picture import Drawing, Picture  # loads matplotlib

TABLES = "tables"
PLOTS = "plots"
PAGE = "report.html"
PICTURES = ("png",)  # by default; drawing takes most of the time of a report

_INSTANT = "%Y-%m-%dT%H:%M:%S.%f%z"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MEASURES = {measure.name for measure in MEASURES}
_TARGET = re.compile(r"(time|bytes)_to_[\d.]+")


@dataclasses.dataclass(frozen=True)
class BuiltReport:
    """A report with the directory that it is written to.

    Attributes:
        targets, against: see `sweep_tables.build_tables`.
        more: further tables, besides those of `build_tables`.
    """

    directory: Path
    report: Report
    info: Mapping[str, Any]
    grid: Grid
    targets: Sequence[float] | None
    against: Mapping[str, str]
    more: Sequence[ReportTable] = ()

    @functools.cached_property
    def tables(self) -> Sequence[ReportTable]:
        race = build_race_table(self.grid, read_notes(self.report.sweeps))
        made = build_tables(self.grid, self.report.epochs, self.targets, self.against)
        return [*([race] if race else []), *made, *self.more]

    @property
    def page(self) -> Path:
        return self.directory / PAGE

    @property
    def left_out(self) -> list[LeftOut]:
        return self.report.left_out


def build_report(
    directory: Path,
    pictures: Sequence[str] = PICTURES,
    formats: Sequence[str] = file_formats.TABLES_BY_DEFAULT,
    targets: Sequence[float] | None = None,
    against: Mapping[str, str] = AGAINST,
) -> BuiltReport:
    """Write summary.csv, tables/, plots/ and report.html of one sweep from its run directories.

    Args:
        pictures, formats: see `write_report`.
        targets, against: see `sweep_tables.build_tables`.
    """
    return write_report(read_report([directory], directory, targets, against), pictures, formats)


def read_report(
    sweeps: Sequence[Path],
    directory: Path,
    targets: Sequence[float] | None = None,
    against: Mapping[str, str] = AGAINST,
) -> BuiltReport:
    """Read the runs of sweeps for one report, one run for each signature; write nothing.

    Args:
        directory: the directory of the report; for a single sweep, the sweep's own.
        targets, against: see `sweep_tables.build_tables`.

    Raises:
        gradsweep.errors.UsageError: no run has the values that `against` asks for.
    """
    report = Report(sweeps).merge()
    infos = [report.read_info(sweep) for sweep in sweeps]
    info: Mapping[str, Any] = infos[0] if len(infos) == 1 else _merge_infos(infos)
    grid = lay_out_runs(report.runs, [key for each in infos for key in get_swept_keys(each)], get_typed_keys(infos))
    check_against(grid, against)
    return BuiltReport(directory, report, info, grid, targets, choose_baseline(grid, against))


def render_report(built: BuiltReport, pictures: Mapping[Path, Picture] | None = None) -> str:
    """Return the HTML page of a report."""
    from reports.page.render import render_page

    report = built.report
    return render_page(
        built.directory,
        built.grid,
        built.tables,
        pictures or {},
        built.info,
        report.left_out,
        report.epochs,
        report.profile,
    )


def write_report(
    built: BuiltReport, pictures: Sequence[str] = PICTURES, formats: Sequence[str] = file_formats.TABLES_BY_DEFAULT
) -> BuiltReport:
    """Write a report into its directory, which is created if missing.

    Args:
        pictures: formats of the plots, from `file_formats.PICTURES`; any of them adds PNG, which the page shows.
        formats: of the tables, from `file_formats.TABLES`.

    Raises:
        gradsweep.errors.UsageError: a folder of the report is a symbolic link.
    """
    directory = built.directory
    for folder in (TABLES, PLOTS):
        if (directory / folder).is_symlink():  # it may lead out of the sweep
            raise errors.UsageError(f"{directory / folder}: a symbolic link; valid is a directory, or nothing")
    (directory / TABLES).mkdir(parents=True, exist_ok=True)
    with _start_drawing(built, pictures) as drawing:  # while this process makes the tables
        _replace_file(directory / run_directory.SUMMARY, _format_summary(built.report.runs, directory))
        _write_tables(built.tables, directory / TABLES, formats)
        drawn = drawing.finish() if drawing else {}
    _replace_file(directory / PAGE, render_report(built, drawn))
    return built


def _write_tables(made: Sequence[ReportTable], directory: Path, formats: Sequence[str]) -> None:
    """Write tables in these formats and in the formats of existing files; delete the files of tables that no longer
    exist.
    """
    there = {path for path in directory.iterdir() if path.suffix[1:] in file_formats.TABLES}
    for table in made:
        kept = [suffix for suffix in file_formats.TABLES if directory / f"{table.name}.{suffix}" in there]
        save_table(table, directory, [*formats, *(suffix for suffix in kept if suffix not in formats)])
    names = {table.name for table in made}
    for path in there:
        if path.stem not in names and (path.stem in _MEASURES or _TARGET.fullmatch(path.stem)):
            path.unlink(missing_ok=True)


def _start_drawing(built: BuiltReport, pictures: Sequence[str]) -> contextlib.AbstractContextManager[Drawing | None]:
    if not pictures:
        return contextlib.nullcontext()
    from reports.plots.picture import Drawing
    from reports.plots.sweep_plots import list_makers

    (built.directory / PLOTS).mkdir(exist_ok=True)
    makers = list_makers(built.grid, built.report.epochs, built.report.profile)
    return Drawing(makers, built.directory / PLOTS, ["png", *pictures])


def _merge_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that are equal in the sweep.yaml of all these sweeps, and the command of each sweep."""
    commands = dict.fromkeys(str(info["command"]) for info in infos if info.get("command"))
    alike = {key: value for key, value in infos[0].items() if all(info.get(key) == value for info in infos)}
    return {**alike, "command": "\n".join(commands)}


def get_swept_keys(info: Mapping[str, Any]) -> list[str]:
    """Return the swept keys that a sweep.yaml records."""
    found = info.get("swept")
    return list(map(str, found)) if isinstance(found, list) else []


def get_typed_keys(infos: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the keys of the overrides that these sweep.yaml record; None if one of them records none."""
    overrides = [info.get("overrides") for info in infos]
    if not all(isinstance(each, list) for each in overrides):
        return None
    return [str(override).partition("=")[0] for each in overrides for override in each or ()]


def summarize_dates(built: Sequence[BuiltReport]) -> None:
    """Write summary.csv for each date with one of these sweeps: all runs of all sweeps of that date."""
    known = {one.directory.resolve(): one.report for one in built}
    for date in dict.fromkeys(directory.parent for directory in known):
        if _DATE.fullmatch(date.name):  # elsewhere the folder is the user's own
            sweeps = list(dict.fromkeys(path.resolve() for path in sorted(date.iterdir()) if is_sweep(path)))
            runs = [(known.get(sweep) or Report([sweep]).merge()).runs for sweep in sweeps]
            _replace_file(date / run_directory.SUMMARY, _format_summary(pd.concat(runs, ignore_index=True), date))


def _format_summary(runs: pd.DataFrame, directory: Path) -> str:
    """Return `Report.runs` as CSV, with the run directories relative to the file's directory."""
    here, parents = directory.resolve(), set(map(os.path.dirname, runs["directory"]))
    shown = {parent: os.path.relpath(Path(parent).resolve(), here) for parent in parents}
    places = [os.path.join(shown[os.path.dirname(place)], os.path.basename(place)) for place in runs["directory"]]
    instants = {name: runs[name].dt.strftime(_INSTANT) for name in runs.select_dtypes("datetimetz")}
    shown = runs.assign(directory=places, **instants).astype("object")
    return spreadsheets.to_csv(list(shown), shown.where(shown.notna(), None).to_numpy().tolist())


def _replace_file(path: Path, text: str) -> None:
    """Replace the file at `path`; lone surrogates, which paths may contain, become `?`."""
    files.write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
