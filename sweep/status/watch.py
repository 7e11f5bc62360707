"""Follow a sweep until it ends (`python -m sweep watch`, and with tables `python -m reports watch`)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from gradsweep import run_directory
from gradsweep.cli import arguments
from gradsweep.errors import UsageError
from sweep.console.console import Output
from sweep.console.messages import build_command, print_line
from sweep.status import find, run_lines
from sweep.status.overview import LOST, Overview, View

INTERVAL_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all commands that follow a sweep."""
    parser.add_argument("words", metavar="DIR", nargs="?", default="last", help="a sweep")
    arguments.add_interval(parser, INTERVAL_S)


def run(options: argparse.Namespace) -> int:
    return follow(options, Table)


def follow(options: argparse.Namespace, on_terminal: type[Table]) -> int:
    """Show a sweep until it ends; return 0 if all its runs are done, else 1."""
    directory, words = find.find_sweep([options.words])
    if words:
        raise UsageError(f"{options.words}: no sweep; valid is the directory of a sweep")
    arguments.check_interval(options.interval)
    overview = Overview(directory)
    overview.refresh()
    console = Output()
    try:
        with (on_terminal if console.is_terminal else Lines)(console, overview) as shown:
            while overview.active:
                shown.show()
                time.sleep(options.interval)
                overview.refresh()
            shown.show()
    except KeyboardInterrupt:
        if overview.active:
            print_line(console, f"\nthe sweep goes on; to end it: {build_command('cancel', directory)}")
        raise
    unfinished = [
        view
        for view in overview.views.values()
        if not run_directory.is_fine({"status": view.status, "reason": view.reason})
    ]
    print_line(console, f"{run_lines.format_headline(overview)}; {run_lines.describe_holder(overview)}")
    for view in unfinished:
        print_line(console, f"  {run_lines.format_run(view)}")
    if any(view.status not in run_directory.COMPLETE for view in unfinished):
        print_line(console, f"\nTo compute only what is missing:\n  {build_command('resume', directory)}")
    return int(bool(unfinished) or not overview.views)


class Lines:
    """Prints a line for each run that ends and each race that begins, for output that is no terminal."""

    def __init__(self, console: Console, overview: Overview) -> None:
        self.console, self.overview = console, overview
        self.ended = {view.name for view in overview.views.values() if view.ended}
        self.racing = run_lines.describe_races(overview)
        print_line(console, f"{run_lines.format_headline(overview)}; {run_lines.describe_holder(overview)}")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def show(self) -> None:
        views = self.overview.views.values()
        news = [view for view in views if view.ended and view.name not in self.ended]
        self.ended = {view.name for view in views if view.ended}  # a run that is taken up again may end again
        for number, view in enumerate(news, len(self.ended) - len(news) + 1):
            print_line(self.console, f"[{number}/{len(views)}]  {run_lines.format_run(view)}")
        before, self.racing = self.racing, run_lines.describe_races(self.overview)
        for race in self.racing:
            if race not in before:
                print_line(self.console, race)


class Table:
    """Shows the sweep on a terminal as a table that is updated, with as many runs as fit."""

    def __init__(self, console: Console, overview: Overview) -> None:
        self.console, self.overview = console, overview
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Table:
        self.live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.live.__exit__(*raised)

    def show(self) -> None:
        self.live.update(self.render(self.console.height), refresh=True)

    def render(self, height: int) -> RenderableType:
        """Draw the table in `height` lines, or in more lines if otherwise no run would fit."""
        above = [run_lines.format_headline(self.overview), run_lines.describe_holder(self.overview), ""]
        room = max(3, height - len(above) - 2)
        shown = "\n".join([*above, *run_lines.format_table(select_visible(list(self.overview.views.values()), room))])
        return Text(shown, no_wrap=True, overflow="ellipsis")


def select_visible(views: Sequence[View], room: int) -> list[View]:
    """Return the at most `room` runs to show; in order of preference: running, lost, ended, waiting."""
    ranks = {run_directory.RUNNING: 0, LOST: 1, run_directory.PENDING: 3}
    first = sorted(views, key=lambda view: (ranks.get(view.status, 2), view.status in run_directory.COMPLETE))[:room]
    chosen = {view.name for view in first}
    return [view for view in views if view.name in chosen]
