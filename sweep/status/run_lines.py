"""Format runs as lines of text, for `status` and `watch`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gradsweep.text import align, describe_lock_owner, duration, number, one_line, plural
from sweep.directory.scheduler_job import COMPLETING
from sweep.status.overview import Overview, View

HEADINGS = ("run", "status", "attempts", "epoch", "accuracy", "it/s", "time", "")
RIGHT = (2, 3, 4, 5, 6)


def format_table(views: Iterable[View]) -> list[str]:
    """Return a line of headings, and one line for each run."""
    return align([HEADINGS, *(_format_cells(view) for view in views)], RIGHT)


def _format_cells(view: View) -> tuple[str, ...]:
    epoch = ""
    if view.epoch is not None:
        epoch = f"{number(view.epoch, '.0f')}/{'?' if view.epochs is None else view.epochs}"
        if view.progress is not None and not view.ended:
            epoch = f"{view.progress:.0%} {epoch}"
    return (
        one_line(view.name),
        view.status,
        str(view.attempts),
        epoch,
        number(view.accuracy, ".4f"),
        number(view.iterations_per_second, ".1f"),
        duration(view.time_s),
        format_remark(view),
    )


def format_run(view: View) -> str:
    """Return a line on one run, without the columns of a table."""
    words = [view.status, one_line(view.name)]
    if view.accuracy is not None:
        words.append(f"accuracy {number(view.accuracy, '.4f')}")
    if view.iterations_per_second is not None:
        words.append(f"{number(view.iterations_per_second, '.1f')} it/s")
    words += [duration(view.time_s), f"({format_remark(view)})" if format_remark(view) else ""]
    return "  ".join(filter(None, words))


def format_remark(view: View) -> str:
    """Return a remark that explains a run's status, such as the reason of a failure."""
    is_queued_again = view.queued and view.waits_for != COMPLETING
    words = [view.reason or "", "queued again" if is_queued_again else "", *view.damaged]
    if view.iterations_per_second is not None and view.few_steps:
        words.append(f"it/s {view.few_steps}")
    if view.left_out:
        words.append("resumed only if named")
    if view.job is not None:
        words.append(f"job {view.job}" + (f" ({view.waits_for})" if view.waits_for else ""))
    return one_line("; ".join(filter(None, words)))


def format_headline(overview: Overview) -> str:
    """Return a line with the directory and the number of runs by status."""
    counts = ", ".join(f"{count} {status}" for status, count in overview.count_statuses().items())
    return f"{os.path.relpath(overview.directory)}: {plural(len(overview.views), 'run')}" + (counts and f": {counts}")


def describe_races(overview: Overview) -> list[str]:
    """Return a phrase for each race that is running."""
    return [f"race under way: {one_line(name)}" for name in overview.racing]


def describe_holder(overview: Overview) -> str:
    """Return a phrase that names the process that runs the sweep, and the race that is running, if any."""
    if overview.holder is not None:
        by = f"run by {describe_lock_owner(overview.holder)} since {one_line(str(overview.holder.get('since')))}"
        return "; ".join([by, *describe_races(overview)])
    return "run by its scheduler's jobs" if overview.active else "nobody is running it"
