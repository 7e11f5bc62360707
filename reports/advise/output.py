"""The table, the picture and the page of an advice."""

from __future__ import annotations

import base64
import dataclasses
import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from gradsweep import files
from gradsweep.options.units import spell_quantities
from gradsweep.text import plural
from reports.advise.advice import LEAST, NOT_WORTH, WORTH, Advice, AdviceList, format_counts, format_estimate
from reports.advise.predict import Estimate
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.page import assets
from reports.plots import style
from reports.plots.layout import COLUMN, GREY, escape_label
from reports.plots.picture import Picture, Plot
from reports.reading.text import choose_byte_unit, format_number
from reports.scaling.measured.links import describe_links
from reports.scaling.output import lines
from reports.scaling.output.tables import CLOSE, NO_ACCURACY, NO_INTERVAL, format_ranges, keep_finite
from reports.tables import formats

NAME = "advice"
CONFIRM = "to confirm it, on that network:"
_VERDICTS = {
    WORTH: f"the whole 90 % interval is above 1, and the gain at least {100 * (LEAST - 1):.0f} %",
    CLOSE: "the 90 % interval contains 1, or the gain is smaller",
    NOT_WORTH: "the whole 90 % interval is below 1",
    NO_INTERVAL: "nothing is known of who is faster",
}
_METHOD = TableColumn("compressor")
_BRIEF = (
    TableColumn("step", "ms", "ms"),
    TableColumn("times as fast", "x"),
    TableColumn("advice"),
    TableColumn("sent a step", "B"),
    TableColumn("memory", "B"),
    TableColumn("state"),
)
"""The columns that a terminal has room for, besides the name."""
_LIMITS = (TableColumn("pays at bandwidths"), TableColumn("pays with workers"))
_ACCURACY = (TableColumn("accuracy"), TableColumn("reported accuracy"), TableColumn("paper"))
_MANY = 300.0
"""The largest over the smallest ratio of a picture above which only powers of ten have room for their labels."""


def build_table(found: AdviceList) -> ReportTable:
    """Return the table of an advice: a row for each method, the fastest first."""
    table = ReportTable(
        NAME,
        _make_title(found),
        (_METHOD, *_BRIEF, *_LIMITS, *_ACCURACY),
        1,
        tuple(_make_row(one, found.counts) for one in found.rows),
        remarks=tuple(filter(None, (found.subject, *_list_remarks(found)))),
        records=tuple(_make_record(one, found) for one in found.rows),
    )
    return _select_columns(table, table.columns)


def shorten(table: ReportTable) -> ReportTable:
    """Return a table of `build_table` with the columns for a terminal, without its notes."""
    return dataclasses.replace(_select_columns(table, (_METHOD, *_BRIEF)), caption="", remarks=())


def _select_columns(table: ReportTable, columns: Iterable[TableColumn]) -> ReportTable:
    """Return a table with these of its columns; those without a text are left out."""
    places = [table.columns.index(column) for column in columns if column in table.columns]
    kept = [place for place in places if any(row[place].text for row in table.rows)]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return dataclasses.replace(table, columns=tuple(table.columns[place] for place in kept), rows=rows)


def _name_setting(found: AdviceList) -> str:
    return f"{plural(found.workers, 'worker')} on {spell_quantities(found.links.name)}"


def _make_title(found: AdviceList) -> str:
    return f"{_name_setting(found)}: times as fast as without compression"


def _list_remarks(found: AdviceList) -> list[str]:
    used = dict.fromkeys(one.verdict for one in found.rows if one.verdict)
    verdicts = "; ".join(f"{word}: {_VERDICTS[word]}" for word in _VERDICTS if word in used)
    networks = map(spell_quantities, describe_links([found.links]))
    return [note for note in (found.warning, *found.notes, verdicts, NO_ACCURACY, *networks) if note]


def _make_row(one: Advice, counts: Sequence[int]) -> tuple[TableCell, ...]:
    step = Estimate(*(1e3 * value for value in (one.step.value, one.step.low, one.step.high)))
    times = make_text_cell("baseline") if one.is_baseline else TableCell(one.times.value, format_estimate(one.times))
    return (
        make_text_cell(one.method),
        TableCell(step.value, format_estimate(step)),
        times,
        make_text_cell(one.verdict),
        _make_size_cell(one.sent_bytes),
        _make_size_cell(one.memory_bytes),
        make_text_cell(one.state),
        make_text_cell("" if one.pays is None else spell_quantities(format_ranges(one.pays))),
        make_text_cell("" if one.is_baseline else format_counts(one, counts)),
        make_text_cell(one.needs),
        make_text_cell(one.reported),
        make_text_cell(one.paper),
    )


def _make_size_cell(size: float) -> TableCell:
    if not math.isfinite(size):
        return make_text_cell("")
    factor, unit = choose_byte_unit(size)
    return TableCell(size, f"{format_number(size / factor)} {unit}")


def _make_record(one: Advice, found: AdviceList) -> dict[str, object]:
    return {
        "compressor": one.method,
        "memory": one.memory,
        "state": one.state,
        "workers": found.workers,
        "network": found.links.name,
        "step_s": one.step.value,
        "step_s_low": keep_finite(one.step.low),
        "step_s_high": keep_finite(one.step.high),
        "times": one.times.value,
        "times_low": keep_finite(one.times.low),
        "times_high": keep_finite(one.times.high),
        "advice": one.verdict or "baseline",
        "sent_bytes": one.sent_bytes,
        "memory_bytes": keep_finite(one.memory_bytes),
        "bandwidths": "" if one.pays is None else format_ranges(one.pays),
        "numbers_of_workers": format_counts(one, found.counts),
        "accuracy": one.needs,
        "reported": one.reported,
        "paper": one.paper,
    }


def plot_advice(found: AdviceList) -> Plot:
    """Plot the times as fast of all methods with their intervals; the baseline is at 1."""
    shown = found.others
    figure = Figure(figsize=(1.25 * COLUMN, 0.9 + 0.2 * len(shown)))
    axis = figure.subplots()
    looks = style.choose_looks([one.method for one in shown])
    axis.axvline(1, color=style.BLACK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1.5)
    for place, one in enumerate(shown):
        face = looks[one.method].colour if one.verdict == WORTH else "white"
        axis.plot([one.times.low, one.times.high], [place, place], "-|", color=GREY, linewidth=0.9, zorder=2.4)
        axis.plot(
            one.times.value, place, "o", color=looks[one.method].colour, markersize=4, markerfacecolor=face, zorder=2.5
        )
    axis.set_xscale("log")
    lines.format_ticks(axis.xaxis)
    left, right = axis.get_xlim()
    if right / left > _MANY:
        axis.xaxis.set_major_locator(LogLocator())
    axis.set_yticks(range(len(shown)), [escape_label(one.method) for one in shown])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("times as fast as the best uncompressed exchange\nlines: 90 % intervals; filled: worth it")
    axis.set_title(f"{found.workers} workers, {escape_label(spell_quantities(found.links.name))}")
    told = "; ".join(f"{one.method} {format_estimate(one.times)}" for one in shown)
    return Plot(NAME, _make_title(found), f"{_make_title(found)}: {told}.", figure)


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}
tbody th, thead th:first-child {{ position: sticky; left: 0; background: var(--paper); }}
.texts td {{ white-space: normal; min-width: 13rem; }}
</style>
</head>
<body>
<main>
<h1><small>Gradsweep advice</small> {title}</h1>
{summary}
{speed}
{command}
<figure><img alt="{alt}" width="{width}" src="data:image/png;base64,{image}"></figure>
{accuracy}
<h2>Notes</h2>
<ul class="note">{notes}</ul>
</main>
</body>
</html>
"""


def render_page(found: AdviceList, table: ReportTable, picture: Picture, directory: Path, command: str) -> str:
    """Return the page of an advice: one file without scripts, in which every text is escaped."""
    summary = {"lead": found.headline, "": found.about_accuracy, "note": found.subject, "bad": found.warning}
    image = picture.get_path(directory).read_bytes()
    accuracy = _select_columns(table, (_METHOD, *_ACCURACY))
    return _PAGE.format(
        title=html.escape(f"Which compressor is worth it: {_name_setting(found)}"),
        style=assets.read_style(),
        summary="\n".join(f'<p class="{name}">{html.escape(text)}.</p>' for name, text in summary.items() if text),
        speed=_render_table(_select_columns(table, (_METHOD, *_BRIEF, *_LIMITS)), table.title),
        command=f"<p>{CONFIRM}</p>\n<pre><code>{html.escape(command)}</code></pre>" if command else "",
        alt=html.escape(picture.alt, quote=True),
        width=assets.measure_width(image),
        image=base64.b64encode(image).decode(),
        accuracy=_render_table(accuracy, "Accuracy", "texts") if len(accuracy.columns) > 1 else "",
        notes="".join(f"<li>{html.escape(note)}.</li>" for note in _list_remarks(found)),
    )


def _render_table(table: ReportTable, title: str, kind: str = "") -> str:
    """Return a table, without notes, that scrolls by itself where it is wider than the page."""
    plain = dataclasses.replace(table, title=title, caption="", remarks=())
    label = html.escape(title, quote=True)
    element = formats.to_html(plain).decode()
    return f'<div class="scroll {kind}" role="region" tabindex="0" aria-label="{label}">\n{element}</div>'


def write(found: AdviceList, directory: Path, table_formats: Sequence[str], command: str) -> ReportTable:
    """Write advice.html, advice.png and the table's files; return the table."""
    from reports.plots.picture import Drawing

    directory.mkdir(parents=True, exist_ok=True)
    table = build_table(found)
    formats.save_table(table, directory, table_formats)
    with Drawing({NAME: lambda: plot_advice(found)}, directory, ["png"]) as drawing:
        picture = next(iter(drawing.finish().values()))
    page = render_page(found, table, picture, directory, command)
    files.write_bytes(directory / f"{NAME}.html", page.encode("utf-8", "replace"), durable=False)
    return table
