"""Render report.html: a single file that shows a sweep without a network and without other files.

All that comes from a config, a log or a path is escaped: text by the template's autoescape, data for the page's scripts
by `assets.embed_json`; the scripts show it as text. The page's Content-Security-Policy lets only these scripts run, and
forbids to fetch anything. Without scripts the page shows the tables and the pictures.
"""

from __future__ import annotations

import base64
import collections
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from gradsweep import run_directory
from reports.analysis import measures
from reports.analysis.answers import write_answers
from reports.analysis.grid import BASELINE, Grid
from reports.analysis.table import ReportTable, TableCell
from reports.analysis.targets import is_evaluated_by_step
from reports.page import assets, cells, runs
from reports.plots import style
from reports.reading.columns import list_metrics
from reports.reading.find_runs import get_sweep_name
from reports.reading.run_files import LeftOut
from reports.reading.text import format_setting
from reports.tables.sweep_tables import write_headline

if TYPE_CHECKING:
    from reports.plots.picture import Picture  # loads matplotlib, which a page without plots does not need

_TEMPLATE = Path(__file__).parent / "report.html"
_REST = "Across settings"
_SECTIONS = {
    # by the topic of the tables: first words of the pictures' names, and the interactive plots
    measures.THROUGHPUT_TOPIC: (("race", "throughput", "efficiency"), ("scaling",)),
    measures.ACCURACY_TOPIC: (("accuracy", "loss", "metric", "pareto", "local", "consensus"), ("accuracy", "pareto")),
    measures.TARGET_TOPIC: ((), ()),
    measures.COMMUNICATION_TOPIC: (("compression", "memory"), ("error",)),
    measures.STEP_TOPIC: (("breakdown",), ("breakdown",)),
    measures.MEMORY_TOPIC: ((), ()),
    _REST: ((), ("heatmap", "parallel")),
}
_TOPICS = {*_SECTIONS, measures.RUNS_TOPIC}
_LONG = 400  # characters; longer values are shown on demand
_ROWS = 100  # rows of a table on the page; the rest is in its CSV
_PICTURES = 4_000_000  # characters of all pictures in a page; above, the page links to their files
_ROWS_OF_RUNS = 1000  # rows of the table of runs without scripts


def render_page(
    directory: Path,
    grid: Grid,
    tables: Sequence[ReportTable],
    plots: Mapping[Path, Picture],
    info: Mapping[str, Any],
    left_out: Sequence[LeftOut],
    epochs: pd.DataFrame,
    profile: pd.DataFrame,
) -> str:
    """Return the page of one sweep.

    Args:
        directory: the sweep's; the page's links are relative to it.
        grid: the layout of its runs.
        tables: all of `build_tables(grid)`.
        plots: the pictures by their files; only PNGs are shown; if they are too large together, the page links to them.
        info: the content of sweep.yaml.
        left_out: the runs and files that the report does not contain.
        epochs: `Report.epochs`.
        profile: `Report.profile`.
    """
    table_of_runs = next(table for table in tables if table.name == "runs")
    details = runs.collect_details(grid, directory)
    pictures = {path: plot for path, plot in plots.items() if path.suffix == ".png"}
    has_pictures = sum(4 * path.stat().st_size // 3 for path in pictures) <= _PICTURES
    library, own = assets.read_scripts()
    head = assets.read_head_script()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        cells=_render_cells,
        name=get_sweep_name(directory),
        long=_LONG,
        most=_ROWS,
        most_runs=_ROWS_OF_RUNS,
        style=assets.read_style(),
        head=head.text,
        library=library.text,
        own=own.text,
        sources=" ".join(script.source for script in (head, library, own)),
        data=assets.embed_json(_collect_data(grid, table_of_runs, details, epochs, profile)),
        answers=write_answers(grid),
        headline=write_headline(grid),
        command=_format_value(info.get("command", "")),
        caption=grid.caption,
        settings=grid.settings,
        options=grid.options,
        sections=list(_make_sections(directory, tables, pictures, has_pictures)),
        beside="" if has_pictures else runs.quote_link(os.path.relpath(next(iter(pictures)).parent, directory)) + "/",
        runs=table_of_runs,
        details=list(zip(table_of_runs.rows, details, strict=True)),
        left_out=[(os.path.relpath(entry.path, directory), entry.reason) for entry in left_out],
        provenance=[(key, text) for key, text in _list_provenance(info) if text and key not in ("format", "command")],
    )


def _collect_data(
    grid: Grid, table: ReportTable, details: Sequence[Mapping[str, Any]], epochs: pd.DataFrame, profile: pd.DataFrame
) -> dict[str, Any]:
    """Return the data of the page's scripts."""
    methods, epochs = grid.by_method, measures.add_tokens(epochs, grid.runs)
    x = cells.list_x(epochs)
    found = cells.collect_cells(methods, epochs, profile)
    return {
        "runs": runs.encode_table(table, details),
        "configs": runs.collect_configs(grid),
        "facts": runs.collect_facts(grid),
        "label": "compressor" if methods is grid else "method",
        "keys": methods.keys,
        "metrics": list_metrics(grid.runs),
        "unit_of_samples": measures.name_samples(grid.runs),
        "least_loss": measures.find_least_loss(grid.runs),
        "cells": found,
        "samples": cells.collect_samples(methods, found),
        "quantiles": cells.list_quantiles(found),
        "curves": cells.collect_run_curves(grid, epochs),
        "profiles": cells.collect_run_profiles(grid, profile, found),
        "curve_x": x,
        "progress": "tokens" if "tokens" in x else "step" if is_evaluated_by_step(epochs) else "epoch",
        "shows_error": measures.shows_error(grid.runs.loc[grid.runs["status"] == run_directory.DONE, "accuracy"]),
        "labels": [
            {"name": label, "colour": look.colour, "marker": look.marker}
            for label, look in style.choose_looks(methods.labels).items()
        ],
        "phases": style.PHASES,
        "baseline": next((label for label in methods.labels if label in style.BASELINES), BASELINE),
    }


def _make_sections(
    directory: Path, tables: Sequence[ReportTable], pictures: Mapping[Path, Picture], has_pictures: bool
) -> Iterator[dict[str, Any]]:
    """Yield the sections of the page; tables and pictures without a section come last."""
    placed = {word for words, _ in _SECTIONS.values() for word in words}
    for title, (words, interactive) in _SECTIONS.items():
        is_rest = title == _REST
        shown = [table for table in tables if table.topic == title or (is_rest and table.topic not in _TOPICS)]
        counts = collections.Counter(note for table in shown for note in table.notes)
        first = [(path, plot, plot.name.partition("_")[0]) for path, plot in pictures.items()]
        yield {
            "title": title,
            "tables": [(table, [note for note in table.notes if counts[note] == 1]) for table in shown],
            "notes": [note for note, count in counts.items() if count > 1],
            "pictures": [
                _describe_picture(directory, path, plot, has_pictures)
                for path, plot, word in first
                if word in words or (is_rest and word not in placed)
            ],
            "interactive": interactive,
        }


def _render_cells(table: ReportTable, row: Sequence[TableCell], first: int = 0, last: int | None = None) -> Markup:
    """Return the cells of a row as HTML elements; a loop in the template would be too slow for so many cells."""
    parts = []
    for place, cell in enumerate(row[first:last], first):
        if place < table.headers:
            parts.append(f'<th scope="row">{escape(cell.text)}</th>')
        else:
            kind = "word" if cell.is_word else "number" if table.columns[place].is_number else ""
            parts.append(f'<td class="{kind}">{escape(cell.text)}</td>')
    return Markup("".join(parts))


def _describe_picture(directory: Path, path: Path, plot: Picture, is_held: bool) -> dict[str, Any]:
    content = path.read_bytes()
    return {
        "width": assets.measure_width(content),
        "title": plot.title,
        "alt": plot.alt,
        "href": runs.quote_link(os.path.relpath(path, directory)),
        "formats": [
            (other.suffix[1:].upper(), runs.quote_link(os.path.relpath(other, directory)))
            for other in (path, path.with_suffix(".svg"), path.with_suffix(".pdf"))
            if other.exists()
        ],
        "base64": base64.b64encode(content).decode() if is_held else "",
    }


def _list_provenance(info: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield the entries of sweep.yaml as (name, text); a long entry in a group, such as git's diff, comes alone."""
    for key, value in info.items():
        group = value if isinstance(value, Mapping) else {}
        long = {name: text for name, item in group.items() if len(text := _format_value(item)) > _LONG}
        yield (
            str(key),
            _format_value({name: item for name, item in group.items() if name not in long} if long else value),
        )
        yield from ((f"{key} {name}", text) for name, text in long.items())


def _format_value(value: Any) -> str:
    """Return a value of sweep.yaml, with all nested values, as one line."""
    if isinstance(value, Mapping):
        texts = {key: _format_value(item) for key, item in value.items()}
        return ", ".join(f"{key} {text}" for key, text in texts.items() if text)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_format_value, value))
    return format_setting(value)
