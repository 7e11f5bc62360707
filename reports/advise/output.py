"""The table, the picture and the page of an advice."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from gradsweep import files
from gradsweep.text import plural
from reports.advise.advice import LEAST, NOT_WORTH, WORTH, Advice, AdviceList, format_counts
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
_VERDICTS = {
    WORTH: f"the whole 90 % interval is above 1, and the gain at least {100 * (LEAST - 1):.0f} %",
    CLOSE: "the 90 % interval contains 1, or the gain is smaller",
    NOT_WORTH: "the whole 90 % interval is below 1",
    NO_INTERVAL: "nothing is known of who is faster",
}


def build_table(found: AdviceList) -> ReportTable:
    """Return the table of an advice: a row for each method, the fastest first."""
    columns = (
        TableColumn("compressor"),
        TableColumn("memory"),
        TableColumn("step", "ms", "ms"),
        TableColumn("times as fast", "x"),
        TableColumn("advice"),
        TableColumn("sent a step", "B"),
        TableColumn("memory of it", "B"),
        TableColumn("pays at bandwidths"),
        TableColumn("pays with workers"),
        TableColumn("accuracy"),
    )
    return ReportTable(
        NAME,
        _make_title(found),
        columns,
        2,
        tuple(_make_row(one, found.counts) for one in found.rows),
        caption=found.subject,
        remarks=tuple(_list_remarks(found)),
        records=tuple(_make_record(one, found) for one in found.rows),
    )


def _make_title(found: AdviceList) -> str:
    return f"{plural(found.workers, 'worker')} on {found.links.name}: times as fast as without compression"


def _list_remarks(found: AdviceList) -> list[str]:
    used = dict.fromkeys(one.verdict for one in found.rows if one.verdict)
    verdicts = "; ".join(f"{word}: {_VERDICTS[word]}" for word in _VERDICTS if word in used)
    networks = describe_links([found.links])
    return [*found.notes, verdicts, found.intervals, found.setting, NO_ACCURACY, *networks]


def _make_row(one: Advice, counts: Sequence[int]) -> tuple[TableCell, ...]:
    step = Estimate(*(1e3 * value for value in (one.step.value, one.step.low, one.step.high)))
    times = make_text_cell("baseline") if one.is_baseline else TableCell(one.times.value, _format(one.times))
    return (
        make_text_cell(one.method),
        make_text_cell(one.memory),
        TableCell(step.value, _format(step)),
        times,
        make_text_cell(one.verdict),
        _make_size_cell(one.sent_bytes),
        _make_size_cell(one.memory_bytes),
        make_text_cell("" if one.pays is None else format_ranges(one.pays)),
        make_text_cell("" if one.is_baseline else format_counts(one, counts)),
        make_text_cell(one.needs),
    )


def _format(one: Estimate) -> str:
    text = format_number(one.value)
    return text if math.isnan(one.low) else f"{text} ({format_number(one.low)} to {format_number(one.high)})"


def _make_size_cell(size: float) -> TableCell:
    if not math.isfinite(size):
        return make_text_cell("")
    factor, unit = choose_byte_unit(size)
    return TableCell(size, f"{format_number(size / factor)} {unit}")


def _make_record(one: Advice, found: AdviceList) -> dict[str, object]:
    return {
        "compressor": one.method,
        "memory": one.memory,
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
    }


def plot_advice(found: AdviceList) -> Plot:
    """Plot the times as fast of all methods with their intervals; the baseline is at 1."""
    shown = [one for one in found.rows if not one.is_baseline]
    figure = Figure(figsize=(1.5 * COLUMN, 0.8 + 0.2 * len(shown)))
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
    axis.set_yticks(range(len(shown)), [escape_label(one.method) for one in shown])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("times as fast as the fastest baseline, 90 %; filled: worth it")
    axis.set_title(f"{found.workers} workers, {escape_label(found.links.name)}")
    told = "; ".join(f"{one.method} {_format(one.times)}" for one in shown)
    return Plot(NAME, _make_title(found), f"{_make_title(found)}: {told}.", figure)


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{summary}
<p><img alt="{alt}" src="data:image/png;base64,{image}"></p>
{table}
{papers}
</main>
</body>
</html>
"""


def render_page(
    found: AdviceList, table: ReportTable, picture: Picture, directory: Path, summary: Sequence[str]
) -> str:
    """Return the page of an advice: one file without scripts, in which every text is escaped."""
    papers = "".join(
        f"<li>{html.escape(name)}: {html.escape(paper)}</li>" for name, paper in found.papers.items() if paper != "-"
    )
    return _PAGE.format(
        title=html.escape(table.title),
        style=assets.read_style(),
        summary="".join(f"<p>{html.escape(line)}</p>" for line in summary),
        alt=html.escape(picture.alt, quote=True),
        image=base64.b64encode(picture.get_path(directory).read_bytes()).decode(),
        table=formats.to_html(table).decode(),
        papers=f"<h2>Methods</h2><ul>{papers}</ul>" if papers else "",
    )


def write(found: AdviceList, directory: Path, table_formats: Sequence[str], summary: Sequence[str]) -> ReportTable:
    """Write advice.html, advice.png and the table's files; return the table."""
    from reports.plots.picture import Drawing

    directory.mkdir(parents=True, exist_ok=True)
    table = build_table(found)
    formats.save_table(table, directory, table_formats)
    with Drawing({NAME: lambda: plot_advice(found)}, directory, ["png"]) as drawing:
        picture = next(iter(drawing.finish().values()))
    page = render_page(found, table, picture, directory, summary)
    files.write_bytes(directory / f"{NAME}.html", page.encode("utf-8", "replace"), durable=False)
    return table
