"""Every sweep below ROOT, the oldest first: when it was started, how its runs stand, and the best of them."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import operator
import os
import re
import sys
from pathlib import Path

from gradsweep import run_directory
from gradsweep.disk.regular_files import open_regular
from gradsweep.errors import UsageError
from gradsweep.sweeps.sweep_locations import OUTPUT, is_sweep, sweeps_below
from gradsweep.text import align, number, one_line
from sweep.status.overview import LOST, Overview

FAILED = (run_directory.FAILED, run_directory.TIMEOUT, run_directory.DIVERGED, LOST)
HEADINGS = ("sweep", "created", "runs", "done", "failed", "best accuracy", "of", "")
_HEAD_BYTES = 4096  # of a sweep.yaml, which may go on with ten thousand points


@dataclasses.dataclass(frozen=True)
class SweepEntry:
    """A line of the list, for one sweep; `failed` counts the runs that are failed, timeout, diverged or lost."""

    directory: str
    created: str | None  # ISO 8601 in UTC
    runs: int
    done: int
    failed: int
    others: dict[str, int]  # number of runs by each other status
    best_accuracy: float | None  # on the test set, after the last epoch, of the runs that are done
    best_run: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # While options are parsed, and --help is one, positional arguments have no default that %(default)s could name.
    parser.add_argument("root", metavar="ROOT", nargs="?", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    parser.add_argument("--json", action="store_true", help="one JSON array")


def run(options: argparse.Namespace) -> int:
    root = options.root
    if not root.is_dir():
        raise UsageError(f"{root}: no such directory; valid is one below which sweeps lie, such as {OUTPUT}")
    sweeps = {root} if is_sweep(root) else set(sweeps_below(root))
    found = sorted(map(_read_sweep, sweeps), key=lambda sweep: (sweep.created or "", sweep.directory))
    if options.json:
        print(json.dumps([dataclasses.asdict(sweep) for sweep in found], indent=1))
    elif found:
        sys.stdout.write("\n".join(align([HEADINGS, *map(_format_cells, found)], right=(2, 3, 4, 5))) + "\n")
    else:
        print(f"{one_line(str(root))}: no sweeps")
    return 0


def _read_sweep(directory: Path) -> SweepEntry:
    overview = Overview(directory)
    overview.refresh()
    counts = overview.count_statuses()
    done = [view for view in overview.views.values() if view.status == run_directory.DONE and view.accuracy is not None]
    best = max(done, key=operator.attrgetter("accuracy"), default=None)
    return SweepEntry(
        os.path.relpath(directory) if not directory.is_absolute() else str(directory),
        _read_creation(directory / run_directory.SWEEP),
        len(overview.views),
        counts.pop(run_directory.DONE, 0),
        sum(counts.pop(status, 0) for status in FAILED),
        counts,
        best.accuracy if best else None,
        best.name if best else None,
    )


def _read_creation(path: Path) -> str | None:
    """Return the start time of a sweep, from the first bytes of its sweep.yaml: parsing a large one takes seconds."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
        found = re.search(r"^created: '?([0-9T:.+-]+)'?$", head, re.MULTILINE)
        return datetime.datetime.fromisoformat(found[1]).isoformat() if found else None
    except (OSError, ValueError):
        return None


def _format_cells(sweep: SweepEntry) -> tuple[str, ...]:
    return (
        one_line(sweep.directory),
        (sweep.created or "")[:16].replace("T", " "),
        str(sweep.runs),
        str(sweep.done),
        str(sweep.failed),
        number(sweep.best_accuracy, ".4f"),
        one_line(sweep.best_run or ""),
        ", ".join(f"{count} {status}" for status, count in sweep.others.items()),
    )
