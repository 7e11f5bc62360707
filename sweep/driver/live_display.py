"""The live display on a terminal: a line for each active run, and the progress of the whole sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gradsweep import run_directory
from gradsweep.text import duration, number, one_line
from sweep.driver.progress_tracker import Row, Tracker

STYLES = {
    run_directory.DONE: "green",
    run_directory.RUNNING: "cyan",
    run_directory.FAILED: "red",
    run_directory.TIMEOUT: "red",
    run_directory.DIVERGED: "yellow",
    run_directory.CANCELLED: "yellow",
    run_directory.PREEMPTED: "yellow",
    run_directory.PRUNED: "yellow",
}
LAST_ENDED = 5  # shown dimmed above the running, where there is room
GAP = 2  # between columns
FRAME = 8  # lines that are not runs: the heading, `more`, a blank one, two to four of the whole, the cursor's

# columns by how wide a terminal must be for them
WIDE, USUAL, NARROW = 100, 76, 50


def build_picture(tracker: Tracker, width: int, height: int, now: float) -> RenderableType:
    """Return the live display with at most `height` lines and `width` columns."""
    room = height - FRAME
    parts: list[RenderableType] = []
    running = tracker.list_running()
    if room > 0 and (running or tracker.rows):
        shown = running[:room]
        ended = tracker.list_ended(min(LAST_ENDED, room - len(shown)))
        if shown or ended:
            parts.append(_build_table(ended, shown, width, now))
        if len(shown) < len(running):
            parts.append(Text(f"... and {len(running) - len(shown)} more running", "dim"))
        if parts:
            parts.append(Text(""))
    parts += _build_totals(tracker, width, now)
    return Group(*parts)


def _build_table(ended: list[Row], running: list[Row], width: int, now: float) -> Table:
    headings = ["epoch", "accuracy", "to go"] if width < USUAL else ["epoch", "loss", "accuracy", "it/s", "to go"]
    if width >= WIDE:
        headings.insert(-1, "time")
    if width < NARROW:
        headings = ["to go"]
    bar = 24 if width >= WIDE else 12 if width >= USUAL else 8
    lines = [_build_cells(row, headings, now) for row in [*ended, *running]]
    widths = [max(map(cell_len, column)) for column in zip(headings, *lines, strict=True)]
    name = max(4, width - bar - sum(widths) - GAP * (len(widths) + 1))
    table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    for wide, justify in ((name, "left"), (bar, "left"), *((each, "right") for each in widths)):
        table.add_column(width=wide, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    heading, labels = _build_labels([shorten_name(row.run.name) for row in [*ended, *running]], name)
    table.add_row(Text(crop(heading, name)), "", *headings, style="dim")
    for row, label, cells in zip([*ended, *running], labels, lines, strict=True):
        over = row.ended is not None
        shown = Text("") if over else _build_bar(row, bar, now)
        table.add_row(Text(crop(label, name)), shown, *cells, style="dim" if over else None)
    return table


def _build_labels(labels: Sequence[str], width: int) -> tuple[str, list[str]]:
    """Return a column's heading and cells: run names, or if these are too wide, their values below their keys."""
    if all(cell_len(label) <= width for label in labels):
        return "run", list(labels)
    keys = {",".join(re.findall(r"(?:^|,)([^,=]+)=", label)) for label in labels}
    return keys.pop() if len(keys) == 1 else "run", [re.sub(r"(^|,)[^,=]+=", r"\1", label) for label in labels]


def _build_cells(row: Row, headings: Sequence[str], now: float) -> list[str]:
    cells = {
        "epoch": "" if row.epoch is None else f"{number(row.epoch, '.0f')}/{row.epochs}",
        "loss": number(row.loss, ".4f"),
        "accuracy": number(row.accuracy, ".4f"),
        "it/s": number(row.iterations_per_second, ".1f"),
        "time": duration(row.measure_seconds(now)),
        "to go": row.job.status if row.ended is not None else duration(row.remaining_s),
    }
    return [cells[heading] for heading in headings]


def _build_bar(row: Row, width: int, now: float) -> ProgressBar:
    """Return the progress bar of a run, which pulses until the first epoch has shown the total number of steps."""
    share = row.share
    return ProgressBar(
        total=1.0 if share is not None else None,
        completed=share or 0.0,
        width=width,
        pulse=share is None,
        animation_time=now,
        complete_style="cyan",
        pulse_style="cyan",
        finished_style="green",
    )


def _build_totals(tracker: Tracker, width: int, now: float) -> list[RenderableType]:
    """Return a progress bar of the whole sweep with the remaining time, and below it the number of runs by status."""
    counts = tracker.count_statuses()
    queued, running = counts.pop(run_directory.PENDING, 0), counts.pop(run_directory.RUNNING, 0)
    over, total = sum(counts.values()), tracker.total
    words = [f"{over}/{total}", duration(now - tracker.began)]
    if over < total and (left := tracker.estimate_remaining_s(now)) is not None:
        words.append(f"about {duration(left)} to go")
    line = Table.grid(padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    bar = ProgressBar(total=max(1, total), completed=over, complete_style="green", finished_style="green")
    line.add_row(bar, Text(", ".join(words), overflow="ellipsis"))
    waiting = sum(row.waiting for row in tracker.rows.values())
    parts = [(f"{count} {status}", STYLES.get(status, "")) for status, count in sorted(counts.items()) if count]
    parts += [(f"{running} running", STYLES[run_directory.RUNNING])] if running else []
    parts += [(f"{queued - waiting} queued", "dim")] if queued > waiting else []
    parts += [(f"{waiting} to be tried again", "yellow")] if waiting else []
    below = Text(", ").join(Text(*each) for each in parts)
    lines = [below]
    if others := tracker.list_waits():
        lines.append(Text(one_line(f"waits for {'; '.join(others)}"), "dim"))
    if tracker.has_shared_cores():
        lines.append(Text("cores are shared: times tell nothing", "yellow"))
    for each in lines:
        each.no_wrap, each.overflow = True, "ellipsis"
    return [line, *lines]


def shorten_name(name: str) -> str:
    """Return a run's name in one line, without its signature and control characters."""
    return one_line(name.rpartition("-")[0] or name)


def crop(text: str, width: int) -> str:
    """Return `text` cut to `width` columns by removing its middle: the names of runs differ at both ends."""
    if cell_len(text) <= width:
        return text
    left = (width - 1) // 2
    right = width - 1 - left
    end = len(text)
    while end > 0 and cell_len(text[end - 1 :]) <= right:
        end -= 1
    return set_cell_size(text, left) + "…" + text[end:]
