"""How the runs of a sweep stand: counts, who runs it, and a line for each run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from sweep import record
from sweep import run as names
from sweep.commands import finding, lines
from sweep.overview import LOST, MISSING, Overview
from sweep.text import one_line

FAILED = (names.FAILED, names.TIMEOUT, names.DIVERGED, LOST, MISSING)


def arguments(parser: argparse.ArgumentParser) -> None:
    finding.add_words(parser, "the runs to show; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--failed", action="store_true", help=f"only runs that are {', '.join(FAILED[:-1])} or {FAILED[-1]}"
    )


def run(options: argparse.Namespace) -> int:
    directory, words = finding.sweep_and_runs(options.words)
    overview = Overview(directory)
    overview.refresh()
    views = list(overview.views.values())
    if words:
        known = [view.name for view in views]
        wanted = {name for word in words for name in finding.matching(word, known)}
        views = [view for view in views if view.name in wanted]
    if options.failed:
        views = [view for view in views if view.status in FAILED]
    if options.json:
        found = {
            "directory": str(directory),
            "holder": overview.holder,
            "active": overview.active,
            "counts": overview.counts(),
            "runs": [dataclasses.asdict(view) for view in views],
            "no_config": overview.strangers,
        }
        print(json.dumps(found, indent=1))
        return 0
    shown = [lines.headline(overview), lines.holding(overview)]
    if overview.holder is None:
        from sweep.directory import torn  # with YAML, which the rest does without

        shown += filter(None, (torn(directory), record.flaw(directory)))
    if views:
        shown += ["", *lines.table(views)]
    if overview.strangers:
        some = ", ".join(map(one_line, overview.strangers[:3])) + (", ..." if len(overview.strangers) > 3 else "")
        shown += ["", f"{len(overview.strangers)} without {names.CONFIG} in {names.RUNS}/, so no run: {some}"]
    sys.stdout.write("\n".join(shown) + "\n")
    return 0
