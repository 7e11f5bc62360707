"""How the runs of a sweep stand: counts, who runs it, and a line for each run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from gradsweep import run_directory
from gradsweep.sweeps import planned_runs
from gradsweep.text import one_line
from sweep.status import find, run_lines
from sweep.status.overview import LOST, MISSING, Overview

FAILED = (run_directory.FAILED, run_directory.TIMEOUT, run_directory.DIVERGED, LOST, MISSING)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    find.add_words(parser, "the runs to show; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--failed", action="store_true", help=f"only runs that are {', '.join(FAILED[:-1])} or {FAILED[-1]}"
    )


def run(options: argparse.Namespace) -> int:
    directory, words = find.find_sweep(options.words)
    overview = Overview(directory)
    overview.refresh()
    views = list(overview.views.values())
    if words:
        names = [view.name for view in views]
        wanted = {name for word in words for name in find.match_names(word, names)}
        views = [view for view in views if view.name in wanted]
    if options.failed:
        views = [view for view in views if view.status in FAILED]
    if options.json:
        status = {
            "directory": str(directory),
            "holder": overview.holder,
            "active": overview.active,
            "racing": overview.racing,
            "counts": overview.count_statuses(),
            "runs": [dataclasses.asdict(view) for view in views],
            "no_config": overview.strangers,
        }
        print(json.dumps(status, indent=1))
        return 0
    shown = [run_lines.format_headline(overview), run_lines.describe_holder(overview)]
    if overview.holder is None:
        from sweep.directory.description import explain_torn  # loads YAML, which nothing else here needs

        shown += filter(None, (explain_torn(directory), planned_runs.flaw(directory)))
    if views:
        shown += ["", *run_lines.format_table(views)]
    if overview.strangers:
        some = ", ".join(map(one_line, overview.strangers[:3])) + (", ..." if len(overview.strangers) > 3 else "")
        shown += [
            "",
            f"{len(overview.strangers)} without {run_directory.CONFIG} in {run_directory.RUNS}/, so no run: {some}",
        ]
    sys.stdout.write("\n".join(shown) + "\n")
    return 0
