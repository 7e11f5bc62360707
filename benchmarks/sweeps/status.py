"""How long `python -m sweep status` takes for a large sweep.

A quarter of the runs each is done, failed, says that it runs (both with 300 steps behind them) and waits. Medians after
a first time that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps.measuring import ROOT, Finding, timed
from gradsweep import csv_columns, files, run_directory

ASKED_S = 3.0
STATUSES = (run_directory.DONE, run_directory.FAILED, run_directory.RUNNING, run_directory.PENDING)
ATTEMPT = {"number": 1, "host": "n7", "started": "2026-11-20T10:00:00.000+00:00", "ended": None}


def write(sweep: Path, number: int, steps: bytes) -> None:
    """A run as files, in one of STATUSES."""
    status = STATUSES[number % len(STATUSES)]
    run = sweep / run_directory.RUNS / f"compressor=qsgd,workers=4,seed={number}-{number:08d}"
    run.mkdir(parents=True)
    (run / run_directory.CONFIG).write_text("workers: 4\nepochs: 40\nmax_steps: null\n")
    attempts = [] if status == run_directory.PENDING else [ATTEMPT]
    (run / run_directory.STATE).write_text(json.dumps({"status": status, "reason": None, "attempts": attempts}))
    if status == run_directory.DONE:
        (run / run_directory.RESULT).write_text(
            json.dumps({"status": status, "accuracy": 0.98, "phases_s": dict.fromkeys("abc", 1)})
        )
    elif attempts:
        (run / run_directory.STEPS).write_bytes(steps)
        files.append_rows(
            run / run_directory.EPOCHS, csv_columns.EPOCH_COLUMNS, [{"epoch": 1, "step": 10, "test_accuracy": 0.75}]
        )


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"step": step, "epoch": 1 + step // 10, "time_s": step / 20, "loss": 0.5} for step in range(1, 301)]
        files.append_rows(Path(folder, run_directory.STEPS), csv_columns.STEP_COLUMNS, rows)
        steps = Path(folder, run_directory.STEPS).read_bytes()
        for number in range(given.runs):
            write(Path(folder), number, steps)
        command = [sys.executable, "-m", "sweep", "status", folder]
        found = [timed(command, Path(folder), {"PYTHONPATH": str(ROOT)}) for _ in range(given.repeats + 1)][1:]
    more = f"cpu {statistics.median(each.cpu for each in found):.2f} s"
    seconds = statistics.median(each.seconds for each in found)
    yield Finding(f"status of {given.runs} runs", seconds, "s", ASKED_S, more)
