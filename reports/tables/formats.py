"""Write tables as files: CSV and Parquet unrounded for programs; Markdown, LaTeX and HTML rounded for people.

CSV and Parquet are tidy: a line for each cell of the table, or for each run in a table whose rows are runs.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files
from gradsweep.cli import spreadsheets
from reports.analysis.table import (
    ALIKE,
    DAGGER,
    DOUBLE_DAGGER,
    LOZENGE,
    PARALLEL,
    PILCROW,
    SECTION,
    STAR,
    TRIANGLE,
    ReportTable,
    TableColumn,
)
from reports.reading.text import clean, format_setting
from reports.tables.file_formats import TABLES, TABLES_BY_DEFAULT


def to_csv(table: ReportTable) -> bytes:
    """Return the records as CSV (`gradsweep.cli.spreadsheets`): numbers with all digits, nothing for unknown ones."""
    rows = ([_format_in_full(value) for value in record.values()] for record in table.records)
    return _encode(spreadsheets.to_csv(_get_column_names(table), rows))


def to_parquet(table: ReportTable) -> bytes:
    """Return the records as Parquet: columns of numbers (if all values are), truth values or texts."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {}
    for name in _get_column_names(table):
        values = [record[name] for record in table.records]
        kinds = {type(value) for value in values if value is not None}
        if kinds <= {int} or kinds <= {bool}:
            columns[name] = pa.array(values, pa.bool_() if bool in kinds else pa.int64())
        elif kinds <= {int, float}:
            columns[name] = pa.array(values, pa.float64())
        else:
            texts = [None if value is None else _replace_surrogates(format_setting(value)) for value in values]
            columns[name] = pa.array(texts, pa.string())
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


def to_markdown(table: ReportTable) -> bytes:
    """Return a Markdown table with aligned columns, and title, notes and caption as paragraphs."""
    units = [f" [{column.shown}]" if column.shown else "" for column in table.columns]
    rows = [[_escape_markdown(column.name) + unit for column, unit in zip(table.columns, units, strict=True)]]
    rows += [[_escape_markdown(cell.text).strip() for cell in row] for row in table.rows]
    widths = [max([len(head) + 2, *map(len, cells)]) for head, *cells in zip(*rows, strict=True)]
    sides = [(">" if column.is_number else "<", width) for column, width in zip(table.columns, widths, strict=True)]
    lines = [
        "".join(f"| {text:{side}{width}} " for text, (side, width) in zip(row, sides, strict=True)) for row in rows
    ]
    rule = "".join(f"|{':':-{side}{width + 2}}" for side, width in sides)
    body = "\n".join(f"{line}|" for line in (lines[0], rule, *lines[1:]))
    parts = [
        f"**{_escape_markdown(table.title)}**{_escape_markdown(f' ({table.spread})') if table.spread else ''}",
        body,
        *map(_escape_markdown, table.notes),
        _escape_markdown(_write_caption(table)),
        *(f"<!-- {_write_comment(settings)} -->" for settings in _list_settings(table)),
    ]
    return _encode("\n\n".join(filter(None, parts)) + "\n")


def to_latex(table: ReportTable) -> bytes:
    r"""Return a LaTeX `table` environment with booktabs' rules, for \input; it needs booktabs and graphicx.

    A unit that all columns of numbers share is in the caption; a table wider than the text is shrunk to its width.
    """
    sides = "".join("r" if column.is_number else "l" for column in table.columns)
    units = {column.shown for column in table.columns if column.is_number}
    unit = units.pop() if len(units) == 1 else ""
    title = f"{table.title} [{unit}]" if unit and f"[{unit}]" not in table.title else table.title
    caption = ". ".join(filter(None, (dataclasses.replace(table, title=title).heading, _write_caption(table))))
    heads = [column.name if unit else _format_heading(column) for column in table.columns]
    lines = [
        "% \\usepackage{booktabs,graphicx}; names in other than Latin letters need XeLaTeX or LuaLaTeX",
        *(f"% {_write_comment(settings)}" for settings in _list_settings(table)),
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{_escape_latex(caption)}.}}",
        f"  \\label{{tab:{''.join(char if char.isascii() and char.isalnum() else '-' for char in table.name)}}}",
        "  \\smallskip",
        f"  \\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{\\begin{{tabular}}{{{sides}}}",
        "    \\toprule",
        f"    {_format_latex_row(heads)}",
        "    \\midrule",
        *(f"    {_format_latex_row([cell.text for cell in row])}" for row in table.rows),
        "    \\bottomrule",
        "  \\end{tabular}}",
        *(["  \\par\\smallskip\\raggedright\\footnotesize"] if table.notes else []),
        *(f"  {_escape_latex(note)}.\\par" for note in table.notes),
        "\\end{table}",
    ]
    return _encode("\n".join(lines) + "\n")


def to_html(table: ReportTable) -> bytes:
    """Return an HTML `table` element for another page."""
    numbers = [' style="text-align: right"' if column.is_number else "" for column in table.columns]
    head = "".join(
        f'<th scope="col"{side}>{html.escape(_format_heading(column))}</th>'
        for side, column in zip(numbers, table.columns, strict=True)
    )
    lines = [
        "<table>",
        f"<caption>{html.escape(table.heading)}</caption>",
        f"<thead><tr>{head}</tr></thead>",
        "<tbody>",
    ]
    for row in table.rows:
        names = [f'<th scope="row">{html.escape(cell.text)}</th>' for cell in row[: table.headers]]
        values = [
            f"<td{side}>{html.escape(cell.text)}</td>"
            for side, cell in zip(numbers[table.headers :], row[table.headers :], strict=True)
        ]
        lines.append(f"<tr>{''.join((*names, *values))}</tr>")
    lines += ["</tbody>"]
    notes = "".join(f"<br>{html.escape(note)}." for note in (*table.notes, _write_caption(table)) if note)
    if notes:
        span = f'<tfoot><tr><td colspan="{len(table.columns)}">{notes.removeprefix("<br>")}</td></tr></tfoot>'
        lines.append(span)
    comments = [f"<!-- {_write_comment(settings)} -->" for settings in _list_settings(table)]
    return _encode("\n".join((*comments, *lines, "</table>")) + "\n")


FORMATS: dict[str, Callable[[ReportTable], bytes]] = dict(
    zip(TABLES, (to_csv, to_markdown, to_latex, to_html, to_parquet), strict=True)
)
"""The writers of tables by the suffix of the file."""


def save_table(table: ReportTable, directory: Path, formats: Sequence[str] = TABLES_BY_DEFAULT) -> list[Path]:
    """Write `<name>.<format>` for each requested format of `FORMATS`, atomically."""
    paths = [directory / f"{table.name}.{suffix}" for suffix in formats]
    for path, suffix in zip(paths, formats, strict=True):
        files.write_bytes(path, FORMATS[suffix](table), durable=False)
    return paths


def _write_caption(table: ReportTable) -> str:
    return f"Settings: {table.caption}" if table.caption else ""


def _list_settings(table: ReportTable) -> list[str]:
    """Return the settings for a comment, if the caption does not name them all."""
    return [table.settings] if table.settings not in ("", table.caption) else []


def _write_comment(settings: str) -> str:
    """Return the text of a comment with all settings, in one line in which no comment ends."""
    return f"in all runs: {clean(settings).replace('--', '- -')}"


def _get_column_names(table: ReportTable) -> list[str]:
    return list(table.records[0]) if table.records else [column.name for column in table.columns]


def _format_in_full(value: Any) -> Any:
    """Return a value for csv: a float with all its digits, and an empty text for None."""
    return value if type(value) in _WRITTEN_IN_FULL else format_setting(value)


_WRITTEN_IN_FULL = {str, float, int, type(None)}


def _format_heading(column: TableColumn) -> str:
    return f"{column.name} [{column.shown}]" if column.shown else column.name


def _encode(text: str) -> bytes:
    return _replace_surrogates(text).encode()


def _replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which paths may contain."""
    return text.encode("utf-8", "replace").decode("utf-8")


_MARKDOWN = re.compile(r"[\\|`*\[~$]|_(?![^\W_])|(?<![^\W_])_")  # an underscore within a word is no markup


def _escape_markdown(text: str) -> str:
    """Escape a text for a cell of a Markdown table, also for variants in which `$` and `~` are markup."""
    return _MARKDOWN.sub(r"\\\g<0>", html.escape(text, quote=False))


def _format_latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(_escape_latex, texts)) + r" \\"


_LATEX = str.maketrans(
    {
        ALIKE: r"\textsuperscript{$\approx$}",
        "²": r"\textsuperscript{2}",
        "µ": r"$\mu$",
        "≥": r"$\geq$",
        "–": "--",
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"{\char34}",
        "[": "{[}",  # after a row's end it would begin an option
        "]": "{]}",
        "`": r"\textasciigrave{}",
        "±": r"$\pm$",
        "…": r"\dots{}",
        STAR: r"\textsuperscript{*}",
        DAGGER: r"\textsuperscript{$\dagger$}",
        DOUBLE_DAGGER: r"\textsuperscript{$\ddagger$}",
        SECTION: r"\textsuperscript{\S}",
        PILCROW: r"\textsuperscript{\P}",
        PARALLEL: r"\textsuperscript{$\|$}",
        LOZENGE: r"\textsuperscript{$\diamond$}",
        TRIANGLE: r"\textsuperscript{$\triangle$}",
    }
)


def _escape_latex(text: str) -> str:
    """Escape a text for LaTeX."""
    return text.replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")  # two would be a dash
