"""Sweeps of very many points, for the parts that measure what these cost before the first and after the last run.

No rank trains anything: a shell script stands in for mpirun.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.sweeps.measuring import PROGRAM, quoted
from gradsweep import run_directory

GROUPS = ["compressor=qsgd,svd,none,topk,sign", "model=mlp,wideresnet"]  # ten choices of groups
ENDLESS = "endless.sh"


def points_option(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("--points", type=int, default=default, help=f"a multiple of 40 (default: {default})")


def grid(points: int) -> list[str]:
    """Overrides that give so many points (a multiple of 40)."""
    return ["-m", *GROUPS, "workers=1,2,4,8", f"seed=range({points // 40})"]


def laid(points: int, folder: Path) -> list[str]:
    """A sweep in folder/s whose runs start and never end."""
    command = quoted([str(folder / ENDLESS), "{workers}"])
    return [*PROGRAM, *grid(points), f"mpi.command={command}", "hydra.sweep.dir=s", "sweep.max_parallel=1"]


def waiting(points: int, folder: Path) -> float:
    """Lay out a sweep in folder/s of which only the first run has begun, then end it; the launcher's peak in MB."""
    endless = folder / ENDLESS
    endless.write_text('#!/bin/sh\n[ "$1" = --version ] || exec sleep 100000\n')
    endless.chmod(0o755)
    process = subprocess.Popen(laid(points, folder), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while not any((folder / "s" / run_directory.RUNS).glob("*/attempt-1")):
            if process.poll() is not None:
                raise SystemExit("the sweep has ended by itself")
            time.sleep(0.5)
        time.sleep(2)  # it shows, and looks after, all of them
        status = Path(f"/proc/{process.pid}/status").read_text()  # of itself; wait4 counts what it has started, too
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return peak / 1000
