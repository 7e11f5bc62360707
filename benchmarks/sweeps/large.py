"""Parts of benchmarks/sweep.py: sweeps of very many points, before their first and after their last run.

No rank trains anything: a shell script stands in for mpirun.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import PROGRAM, ROOT, Finding, quote_list, read_memory, run_python, time_command
from gradsweep import csv_columns, files, run_directory
from sweep.directory.run_state import write_state

GROUPS = ["compressor=qsgd,svd,none,topk,sign", "model=mlp,wideresnet"]  # ten choices of groups
STATUSES = (run_directory.DONE, run_directory.FAILED, run_directory.RUNNING, run_directory.PENDING)
ATTEMPT = {"number": 1, "host": "n7", "started": "2026-11-20T10:00:00.000+00:00", "ended": None}
COMPOSE = """
import sys, time
from benchmarks.measuring import load_hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from sweep.config import grid
from sweep.config.composer import Composer

with load_hydra():
    loader = GlobalHydra.instance().config_loader()
    master = loader.load_configuration("config", [], RunMode.MULTIRUN)
    points = grid.expand_points({}, sys.argv[1:], [], OverridesParser.create(config_loader=loader))
    some = points[:: max(1, len(points) // 20)]
    began = time.perf_counter()
    for point in some:
        loader.load_sweep_config(master, point)
    between = time.perf_counter()
    Composer(loader, master).compose(points)
    ended = time.perf_counter()
    print(1000 * (between - began) / len(some), 1000 * (ended - between) / len(points))
"""


def make_grid(points: int) -> list[str]:
    """Return overrides that give so many points (a multiple of 40)."""
    return [*GROUPS, "workers=1,2,4,8", f"seed=range({points // 40})"]


def make_command(points: int, folder: Path) -> list[str]:
    """Return the command of a sweep in folder/s whose runs start and never end."""
    endless = folder / "endless.sh"
    endless.write_text('#!/bin/sh\n[ "$1" = --version ] || exec sleep 100000\n')
    endless.chmod(0o755)
    command = f"mpi.command={quote_list([str(endless), '{workers}'])}"
    return [*PROGRAM, "-m", *make_grid(points), command, "hydra.sweep.dir=s", "sweep.max_parallel=1"]


def lay_out(command: list[str], folder: Path) -> float:
    """Start the sweep of `make_command`, end it when its first run has begun, and return the launcher's peak in MB."""
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while not any((folder / "s" / run_directory.RUNS).glob("*/attempt-1")):
            if process.poll() is not None:
                raise SystemExit("the sweep has ended by itself")
            time.sleep(0.5)
        time.sleep(2)  # until it shows and watches all of them
        return read_memory(process.pid)["VmHWM"] / 1.024e6  # without that of its children, which wait4 would count
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def plan(points: int = 1000) -> Iterator[Finding]:
    """Time a dry run of many points (a multiple of 40).

    It composes, checks and names them all and reads what is finished.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = time_command([*PROGRAM, "-m", *make_grid(points), "sweep.dry_run=true"], Path(folder))
    assert f"{points} runs to do" in done.out, done.out
    yield Finding(f"dry run of {points} points", done.seconds, "s", 10.0, done.more)


def compose(points: int = 1000) -> Iterator[Finding]:
    """Time Hydra composing some of many points (a multiple of 40) one by one, and the launcher composing all."""
    one, fast = map(float, run_python(COMPOSE, *make_grid(points)).split())
    yield Finding("composing a point by Hydra", one, "ms")
    what = f"composing a point of {points} as the launcher does"
    yield Finding(what, fast, "ms", None, f"{one / fast:.0f} times faster")


def resume(points: int = 1000, repeats: int = 3) -> Iterator[Finding]:
    """Time the same command again when all of its runs (a multiple of 40) are finished.

    It plans them all, finds nothing to do, and keeps the report. The finished runs are written by this program.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = make_command(points, folder)
        lay_out(command, folder)
        runs = run_directory.runs_of(folder / "s")
        for run in runs:
            write_state(run, status=run_directory.DONE)
            files.write_json(run.path(run_directory.RESULT), {"status": run_directory.DONE, "accuracy": 0.5})
        (folder / "s" / "report.html").touch()
        times = [time_command([*command, "sweep.resume=s"], folder) for _ in range(repeats)]
    median = sorted(times, key=lambda done: done.seconds)[repeats // 2]
    assert f"0 of {points} runs to do" in median.out and "nothing has changed" in median.out, median.out
    yield Finding(f"resuming {len(runs)} finished runs", median.seconds, "s", 5.0, median.more)


def memory(points: int = 10_000) -> Iterator[Finding]:
    """Measure the launcher's peak while many points (a multiple of 40) wait behind one that does not end."""
    with tempfile.TemporaryDirectory() as name:
        peak = lay_out(make_command(points, Path(name)), Path(name))
    yield Finding(f"memory of the launcher of {points} points", peak, "MB", 300.0)


def status(runs: int = 10_000, repeats: int = 5) -> Iterator[Finding]:
    """Time `python -m sweep status` of a large sweep.

    A quarter of the runs each is done, failed, running by its state (both with 300 steps behind them), and pending.
    Medians after a first time that is not counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"step": step, "epoch": 1 + step // 10, "time_s": step / 20, "loss": 0.5} for step in range(1, 301)]
        files.append_rows(Path(folder, run_directory.STEPS), csv_columns.STEP_COLUMNS, rows)
        steps = Path(folder, run_directory.STEPS).read_bytes()
        for number in range(runs):
            _write_run(Path(folder), number, steps)
        command = [sys.executable, "-m", "sweep", "status", folder]
        times = [time_command(command, Path(folder), PYTHONPATH=str(ROOT)) for _ in range(repeats + 1)][1:]
    more = f"cpu {statistics.median(done.cpu for done in times):.2f} s"
    yield Finding(f"status of {runs} runs", statistics.median(done.seconds for done in times), "s", 3.0, more)


def _write_run(sweep: Path, number: int, steps: bytes) -> None:
    """Write a run in one of STATUSES as files."""
    status = STATUSES[number % len(STATUSES)]
    run = sweep / run_directory.RUNS / f"compressor=qsgd,workers=4,seed={number}-{number:08d}"
    run.mkdir(parents=True)
    (run / run_directory.CONFIG).write_text("workers: 4\nepochs: 40\nmax_steps: null\n")
    attempts = [] if status == run_directory.PENDING else [ATTEMPT]
    (run / run_directory.STATE).write_text(json.dumps({"status": status, "reason": None, "attempts": attempts}))
    if status == run_directory.DONE:
        result = {"status": status, "accuracy": 0.98, "phases_s": dict.fromkeys("abc", 1)}
        (run / run_directory.RESULT).write_text(json.dumps(result))
    elif attempts:
        (run / run_directory.STEPS).write_bytes(steps)
        epochs = [{"epoch": 1, "step": 10, "test_accuracy": 0.75}]
        files.append_rows(run / run_directory.EPOCHS, csv_columns.EPOCH_COLUMNS, epochs)
