"""Collect the data of a page's runs: the rows of their table, their configs and their logs."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from reports.analysis.grid import BASELINE, Grid
from reports.analysis.table import ReportTable
from reports.page.assets import encode_texts
from reports.reading import networks
from reports.reading.columns import is_config_key
from reports.reading.text import clean, format_setting, format_settings
from reports.tables.sweep_tables import explain_status

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and cursor movements (ECMA-48)
_LOGS = 2_000_000  # characters of logs in one page
_LINE = 500  # characters of one of their lines


def encode_table(table: ReportTable, details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of all runs, by column; a cell without a number has its text."""
    columns = []
    for place, column in enumerate(table.columns):
        texts = [row[place].text for row in table.rows]
        kind = "number" if column.is_number else "name" if place < table.headers else "text"
        columns.append({"name": column.name, "unit": column.shown, "kind": kind, **encode_texts(texts)})
    unfinished = {str(row): detail for row, detail in enumerate(details) if detail["log_name"]}
    return {
        "count": len(table.rows),
        "columns": columns,
        "paths": encode_texts(detail["path"] for detail in details),
        "unfinished": {
            row: {key: detail[key] for key in ("reason", "log", "log_name")} for row, detail in unfinished.items()
        },
    }


def collect_configs(grid: Grid) -> dict[str, Any]:
    """Return the configs of all runs: values that all share once, the others by key."""
    keys = [key for key in grid.runs.columns if is_config_key(key) and key not in ("label", "cell")]
    distinct = grid.runs[keys].nunique(dropna=False) if len(grid.runs) else {}
    same = [key for key in keys if distinct[key] == 1] if len(grid.runs) else []
    return {
        "common": {key: format_setting(grid.runs[key].iloc[0]) for key in same},
        "differing": {key: encode_texts(format_settings(grid.runs[key])) for key in keys if key not in same},
        "baseline": BASELINE,
    }


def collect_facts(grid: Grid) -> dict[str, Any]:
    """Return further facts about every run, by column."""
    runs = grid.runs
    instants = {key: runs[key].dt.strftime("%Y-%m-%d %H:%M:%S UTC").fillna("") for key in ("started", "ended")}
    plain: tuple[str, ...] = ("status", "disturbance", "training_disturbance", "hosts", "cpu", "gpu", "transport")
    plain += ("attempts", "steps_done", "epochs_done")
    found = {
        key: encode_texts(format_settings(values))
        for key, values in (*((key, runs[key]) for key in plain), *instants.items())
    }
    measured = zip(runs["network_latency_s"], runs["network_bandwidth"], strict=True)
    return found | {"network measured": encode_texts([networks.format_network(*values) for values in measured])}


def collect_details(grid: Grid, directory: Path) -> list[dict[str, str]]:
    """Return for each run its path, and if it is not done the reason and the end of its log.

    `log_name` is empty if the run is done. `log` is empty then, too, and if the page had no space for the log.
    """
    found, room = [], _LOGS
    columns = (grid.runs[key] for key in ("directory", "status", "reason", "attempts"))
    for place, status, reason, attempts in zip(*columns, strict=True):
        path = os.path.relpath(place, directory)
        detail = {"path": path, "href": quote_link(path) + "/", "reason": "", "log": "", "log_name": ""}
        if status != run_directory.DONE:
            detail["reason"] = explain_status(status, reason)
            name, lines = (
                _read_log(run_directory.Run(Path(place)), attempts) if room > 0 else (run_directory.STDERR, [])
            )
            detail |= {"log": "\n".join(lines), "log_name": name}
            room -= len(detail["log"])
        found.append(detail)
    return found


def _read_log(run: run_directory.Run, attempts: int) -> tuple[str, list[str]]:
    """Return the path and the last lines of the last attempt's stderr, or of its stdout if stderr is empty."""
    attempt = run.attempt(attempts)
    for name in (run_directory.STDERR, run_directory.STDOUT):
        if lines := [_clean_line(line) for line in files.tail(attempt / name)]:
            return os.path.relpath(attempt / name, run.directory), lines
    return os.path.relpath(attempt / run_directory.STDERR, run.directory), []


def _clean_line(line: str) -> str:
    line = clean(_ESCAPE_SEQUENCE.sub("", line))
    return line if len(line) <= _LINE else f"{line[:_LINE]}…"


def quote_link(path: str) -> str:
    """Return a relative path as a link that no browser takes for a URL with a scheme."""
    return urllib.parse.quote(path)
