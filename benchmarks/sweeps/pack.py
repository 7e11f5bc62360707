"""What sweep.pack=true saves: wall time of the main sweep, packed and unpacked, and memory over many packed runs.

The two sides are interleaved, medians are shown; CPU time is that of all processes. --memory: resident memory of rank
0 of one world while it trains so many runs of a small WRN, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps.measuring import PROGRAM, Finding
from gradsweep.run_directory import DONE, runs_of
from sweep.system.processes import WORLD_VARIABLE, find_processes

ASKED = 0.5  # for the main sweep
MAIN = ["compressor=qsgd,svd,none", "workers=2,4,8"]
SMALL = ["epochs=1", "max_steps=3", "workers=2", "compressor=topk", "memory=residual", "batch.size=32"]


def begin(folder: str, *overrides: str) -> subprocess.Popen[bytes]:
    """Start a sweep in `folder`/sweep."""
    command = [*PROGRAM, "-m", "hydra.sweep.dir=sweep", "sweep.snapshot=false"]
    return subprocess.Popen([*command, *overrides], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def check(program: subprocess.Popen[bytes], folder: str) -> None:
    """All runs of the sweep must have been done."""
    if program.wait() or any(run.status() != DONE for run in runs_of(Path(folder, "sweep"))):
        raise SystemExit("a run has failed")


def seconds(*overrides: str) -> tuple[float, float]:
    """Wall time and CPU time of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        began, before = time.perf_counter(), os.times()
        check(begin(folder, *overrides), folder)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return time.perf_counter() - began, used


def memory(runs: int) -> Iterator[Finding]:
    """What rank 0 holds after the first run, and after each ten of so many."""
    with tempfile.TemporaryDirectory() as folder:
        program = begin(folder, "sweep.pack=true", f"seed=range({runs})", "sweep.max_parallel=1", *SMALL)
        world = Path(folder, "sweep/worlds/world-1").absolute()
        printed = 0
        while program.poll() is None:
            done = sum(run.status() == DONE for run in runs_of(Path(folder, "sweep")))
            if done > printed and (done % 10 == 0 or done == 1):
                held = ranks_mb(world)
                if held:
                    resident, own = max(held)
                    note = f"{own:.1f} MB of it shared with no process"
                    yield Finding(f"memory of rank 0 after {done} packed runs", resident, "MB", None, note)
                printed = done
            time.sleep(0.05)
        check(program, folder)


def ranks_mb(world: Path) -> list[tuple[float, float]]:
    """What each rank of a world holds in memory, and how much of that is its own."""
    found = []
    for pid in find_processes(world, WORLD_VARIABLE):
        with contextlib.suppress(OSError, KeyError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"trainers.packed.worker" in words or any(
                word.endswith(b"/trainers/packed/fork_server.py") for word in words
            ):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                kilobytes = {name.rstrip(":"): int(size) for name, size, *_ in map(str.split, lines)}
                own = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
                found.append((kilobytes["Rss"] * 1.024e-3, own * 1.024e-3))
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--grid", nargs="+", default=MAIN, help=f"default: {' '.join(MAIN)}")
    parser.add_argument("--memory", type=int, metavar="RUNS")


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    if given.memory:
        yield from memory(given.memory)
        return
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(given.repeats):
        for packed, found in times.items():
            found.append(seconds(f"sweep.pack={str(packed).lower()}", *given.grid))
            wall, cpu = found[-1]
            yield Finding("packed" if packed else "unpacked", wall, "s", None, f"cpu {cpu:.1f} s")
    for index, what in enumerate(("wall", "CPU")):
        apart, together = (statistics.median(each[index] for each in found) for found in times.values())
        asked = ASKED if what == "wall" and given.grid == MAIN else None
        yield Finding(f"packed / unpacked, {what} time of {' '.join(given.grid)}", together / apart, "", asked)
