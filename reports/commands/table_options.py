"""The options for tables: their formats, and a single table with rows and columns that the user chooses."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean
from reports.tables.file_formats import TABLES, TABLES_BY_DEFAULT

FORMATS_BY_DEFAULT = ",".join(TABLES_BY_DEFAULT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--format", default=FORMATS_BY_DEFAULT, metavar="F,F", help=f"of {', '.join(TABLES)}; default: %(default)s"
    )
    group.add_argument(
        "--target",
        metavar="A,A",
        help="test accuracies of which time and bytes are told: 0.9,0.95 (default: two that "
        "at least half of the runs reach)",
    )
    group.add_argument(
        "--against",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="what is compared with, instead of compressor=none; may be typed for several keys",
    )
    one = parser.add_argument_group("one table of your own (instead of a report)")
    one.add_argument("--rows", metavar="KEY,KEY", help="config keys that say what a row is; default: compressor")
    one.add_argument("--cols", metavar="KEY,KEY", help="config keys that say what a column is; default: workers")
    one.add_argument("--value", metavar="MEASURE", help="what is told: accuracy (default), throughput, time_to_95, ...")
    one.add_argument(
        "--where",
        metavar="KEY=VALUE,VALUE",
        action="append",
        default=[],
        help="only runs with one of these values; may be typed for several keys",
    )


def parse_formats(options: argparse.Namespace) -> list[str]:
    """Return the formats of tables that the command line names.

    Raises:
        gradsweep.errors.UsageError: there is no such format.
    """
    return parse_words("--format", options.format, TABLES)


def parse_words(option: str, typed: str, valid: Sequence[str]) -> list[str]:
    """Return the words of an option's value, without repetitions.

    Raises:
        gradsweep.errors.UsageError: a word is not valid.
    """
    found = list(dict.fromkeys(filter(None, typed.split(","))))
    for word in found:
        if word not in valid:
            raise UsageError(f"{option} {word}: {did_you_mean(word, valid)}valid are {', '.join(valid)}")
    return found


def parse_targets(options: argparse.Namespace) -> list[float] | None:
    """Return the target accuracies of the command line, without repetitions; None if there are none.

    Raises:
        gradsweep.errors.UsageError: a target is not a number between 0 and 1.
    """
    if options.target is None:
        return None
    found = []
    for text in filter(None, options.target.split(",")):
        try:
            found.append(float(text))
        except ValueError:
            found.append(-1.0)
        if not 0 < found[-1] <= 1:
            raise UsageError(f"--target {text}: expected a share above 0 and up to 1, such as 0.95")
    return list(dict.fromkeys(found))


def parse_against(options: argparse.Namespace) -> Mapping[str, str]:
    from reports.tables import pivot

    return pivot.parse_against(options.against)


def wants_one_table(options: argparse.Namespace) -> bool:
    """Tell whether the options ask for a single table in place of a report."""
    return bool(options.rows is not None or options.cols is not None or options.value or options.where)


def write_one_table(options: argparse.Namespace, directory: Path) -> list[Path]:
    """Write and print the requested table; return its files."""
    from reports.building.sweep_report import TABLES, get_swept_keys, get_typed_keys
    from reports.reading.report import Report
    from reports.tables import terminal
    from reports.tables.formats import save_table
    from reports.tables.pivot import Choice, parse_where, pivot

    rows = _parse_keys(options.rows, ["compressor"])
    cols = _parse_keys(options.cols, [] if "workers" in rows else ["workers"])
    choice = Choice(rows, cols, options.value or "accuracy", parse_where(options.where))
    report = Report([directory]).merge()
    info = report.read_info(directory)
    table = pivot(
        report.runs,
        report.epochs,
        choice,
        get_swept_keys(info),
        parse_targets(options),
        parse_against(options),
        get_typed_keys([info]),
    )
    (directory / TABLES).mkdir(exist_ok=True)
    files = save_table(table, directory / TABLES, parse_formats(options))
    if not options.quiet:
        terminal.print_tables([table])
    return files


def _parse_keys(typed: str | None, default: Sequence[str]) -> list[str]:
    return [key.removesuffix(".name") for key in typed.split(",") if key] if typed is not None else list(default)
