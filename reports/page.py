"""report.html: one file that shows a sweep without network, scripts or the files beside it.

Whatever comes from a config, a log or a path is escaped by the template's autoescape.
"""

from __future__ import annotations

import base64
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from reports.collect import LeftOut, sweep_name
from reports.grid import Grid
from reports.table import Table
from reports.tables import headline, why
from reports.text import clean, setting
from sweep import run as rundir

if TYPE_CHECKING:
    from reports.plots import Picture  # loads matplotlib, which a page without plots does not need

_TEMPLATE = Path(__file__).parent / "report.html"
_SECTIONS = (
    ("Throughput", ("throughput", "throughput_samples", "speedup"), ("throughput",)),
    ("Accuracy", ("accuracy", "accuracy_best"), ("accuracy_epoch", "accuracy_time", "accuracy_bytes")),
    ("Communication", ("payload", "sent", "compression_ratio"), ()),
    ("Time of a step", ("phases",), ("breakdown",)),
)
_LONG = 400  # characters; what is longer is shown on demand
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and cursor movements (ECMA-48)


def render(
    directory: Path,
    grid: Grid,
    tables: Sequence[Table],
    plots: Mapping[Path, Picture],
    info: Mapping[str, Any],
    left_out: Sequence[LeftOut],
) -> str:
    """The page of one sweep.

    Args:
        directory: the sweep's; the page's links are relative to it.
        grid: the layout of its runs.
        tables: all of `tables.tables(grid)`.
        plots: by the files that hold them.
        info: the content of sweep.yaml.
        left_out: what the report does not contain.
    """
    by_name = {table.name: table for table in tables}
    pictures = {plot.name: _picture(directory, path, plot) for path, plot in plots.items()}
    sections = []
    for title, table_names, plot_names in _SECTIONS:
        shown = [by_name[name] for name in table_names if name in by_name]
        notes = list(dict.fromkeys(note for table in shown for note in table.notes))
        found = [pictures[name] for name in plot_names if name in pictures]
        sections.append({"title": title, "tables": shown, "notes": notes, "pictures": found})
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        name=sweep_name(directory),
        long=_LONG,
        headline=headline(grid),
        command=_text(info.get("command", "")),
        caption=grid.caption,
        options=grid.options,
        sections=sections,
        runs=by_name["runs"],
        details=[
            (row, _details(run, directory))
            for row, run in zip(by_name["runs"].rows, grid.runs.to_dict("records"), strict=True)
        ],
        left_out=[(os.path.relpath(entry.path, directory), entry.reason) for entry in left_out],
        provenance=[(key, text) for key, text in _provenance(info) if text and key not in ("format", "command")],
    )


def _picture(directory: Path, path: Path, plot: Picture) -> dict[str, str]:
    return {
        "title": plot.title,
        "alt": plot.alt,
        "href": _link(directory, path),
        "base64": base64.b64encode(path.read_bytes()).decode(),
    }


def _details(run: Mapping[Any, Any], directory: Path) -> dict[str, str]:
    """What the table of runs tells of a run besides its numbers; `log_name` only of those that are not done."""
    place = Path(run["directory"])
    details = {"href": _link(directory, place) + "/", "path": os.path.relpath(place, directory), "log_name": ""}
    if run["status"] == rundir.DONE:
        return details
    attempt = rundir.Run(place).attempt(run["attempts"])
    logs = [attempt / rundir.STDERR, attempt / rundir.STDOUT]
    lines = {log: [clean(_ESCAPE_SEQUENCE.sub("", line)) for line in rundir.tail(log)] for log in logs}
    log = next((log for log in logs if lines[log]), logs[0])
    details |= {
        "reason": why(run["status"], run["reason"]),
        "log": "\n".join(lines[log]),
        "log_name": os.path.relpath(log, place),
    }
    return details


def _link(directory: Path, path: Path) -> str:
    return urllib.parse.quote(os.path.relpath(path, directory))


def _provenance(info: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """What is known, under its name; what is long in a group, such as git's diff, by itself."""
    for key, value in info.items():
        group = value if isinstance(value, Mapping) else {}
        long = {name: text for name, item in group.items() if len(text := _text(item)) > _LONG}
        yield str(key), _text({name: item for name, item in group.items() if name not in long} if long else value)
        yield from ((f"{key} {name}", text) for name, text in long.items())


def _text(value: Any) -> str:
    """A value of sweep.yaml, whatever is nested in it, as one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    return setting(value)
