"""The same command again, when all of its runs are done: it plans them all, finds nothing to do, and keeps the report.

The finished runs are written by this program.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps import large
from benchmarks.sweeps.measuring import Finding, timed
from gradsweep import files, run_directory
from sweep.directory.run_state import write_state

ASKED_S = 5.0


def options(parser: argparse.ArgumentParser) -> None:
    large.points_option(parser, 1000)
    parser.add_argument("--repeats", type=int, default=3, help="of which the median counts (default: 3)")


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large.waiting(given.points, folder)
        runs = run_directory.runs_of(folder / "s")
        for run in runs:
            write_state(run, status=run_directory.DONE)
            files.write_json(run.path(run_directory.RESULT), {"status": run_directory.DONE, "accuracy": 0.5})
        (folder / "s" / "report.html").touch()
        found = [timed([*large.laid(given.points, folder), "sweep.resume=s"], folder) for _ in range(given.repeats)]
    done = sorted(found, key=lambda each: each.seconds)[len(found) // 2]
    assert f"0 of {given.points} runs to do" in done.out and "nothing has changed" in done.out, done.out
    yield Finding(f"resuming {len(runs)} finished runs", done.seconds, "s", ASKED_S, done.more)
