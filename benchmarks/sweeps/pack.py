"""A part of benchmarks/sweep.py: what sweep.pack=true saves."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measuring import PROGRAM, Finding, measure_children_cpu, read_memory
from gradsweep.run_directory import DONE, runs_of
from sweep.system.processes import WORLD_VARIABLE, find_processes

MAIN = ("compressor=qsgd,svd,none", "workers=2,4,8")
SMALL = ("epochs=1", "max_steps=3", "workers=2", "compressor=topk", "memory=residual", "batch.size=32")


def start(folder: str, *overrides: str) -> subprocess.Popen[bytes]:
    """Start a sweep in `folder`/sweep."""
    command = [*PROGRAM, "-m", "hydra.sweep.dir=sweep", "sweep.snapshot=false", *overrides]
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def check_done(program: subprocess.Popen[bytes], folder: str) -> None:
    """Wait for a sweep and check that all of its runs are done."""
    if program.wait() or any(run.status() != DONE for run in runs_of(Path(folder, "sweep"))):
        raise SystemExit("a run has failed")


def time_sweep(*overrides: str) -> tuple[float, float]:
    """Return wall time and CPU time of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        began, before = time.perf_counter(), measure_children_cpu()
        check_done(start(folder, *overrides), folder)
        return time.perf_counter() - began, measure_children_cpu() - before


def measure_memory(runs: int) -> Iterator[Finding]:
    """Measure what rank 0 holds after the first run, and after each ten of so many."""
    with tempfile.TemporaryDirectory() as folder:
        program = start(folder, "sweep.pack=true", f"seed=range({runs})", "sweep.max_parallel=1", *SMALL)
        world = Path(folder, "sweep/worlds/world-1").absolute()
        last = 0
        while program.poll() is None:
            done = sum(run.status() == DONE for run in runs_of(Path(folder, "sweep")))
            if done > last and (done % 10 == 0 or done == 1):
                if ranks := list(_measure_ranks(world)):
                    resident, own = max(ranks)
                    note = f"{own:.1f} MB of it shared with no process"
                    yield Finding(f"memory of rank 0 after {done} packed runs", resident, "MB", None, note)
                last = done
            time.sleep(0.05)
        check_done(program, folder)


def _measure_ranks(world: Path) -> Iterator[tuple[float, float]]:
    """Yield the memory of each rank of a world in MB, and how much of it no other process shares."""
    for pid in find_processes(world, WORLD_VARIABLE):
        with contextlib.suppress(OSError, KeyError):  # it has ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith((b"trainers.packed.worker", b"/trainers/packed/fork_server.py")) for word in words):
                memory = read_memory(pid, "smaps_rollup")
                yield memory["Rss"] / 1e6, (memory["Private_Clean"] + memory["Private_Dirty"]) / 1e6


def pack(repeats: int = 1, grid: Sequence[str] = MAIN, memory: int = 0) -> Iterator[Finding]:
    """Measure what sweep.pack=true saves: wall time of the main sweep, packed and unpacked, or memory.

    The two sides are interleaved, medians are shown; CPU time is that of all processes. --memory RUNS: resident memory
    of rank 0 of one world while it trains so many runs of a small WRN, one after the other.
    """
    if memory:
        yield from measure_memory(memory)
        return
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(repeats):
        for packed, sweeps in times.items():
            wall, cpu = time_sweep(f"sweep.pack={str(packed).lower()}", *grid)
            sweeps.append((wall, cpu))
            yield Finding("packed" if packed else "unpacked", wall, "s", None, f"cpu {cpu:.1f} s")
    for index, what in enumerate(("wall", "CPU")):
        apart, together = (statistics.median(figures[index] for figures in sweeps) for sweeps in times.values())
        limit = 0.5 if what == "wall" and tuple(grid) == MAIN else None
        yield Finding(f"packed / unpacked, {what} time of {' '.join(grid)}", together / apart, "", limit)
