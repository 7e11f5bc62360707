"""A part of benchmarks/sweep.py: what sweep.pack=true saves."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measuring import PROGRAM, Finding, time_command
from gradsweep.run_directory import DONE, runs_of

MAIN = ("compressor=qsgd,svd,none", "workers=2,4,8")


def time_sweep(*overrides: str) -> tuple[float, float]:
    """Return wall time and CPU time of a sweep, all of whose runs must be done."""
    command = [*PROGRAM, "-m", "hydra.sweep.dir=sweep", "sweep.snapshot=false", *overrides]
    with tempfile.TemporaryDirectory() as folder:
        done = time_command(command, Path(folder))
        if any(run.status() != DONE for run in runs_of(Path(folder, "sweep"))):
            raise SystemExit("a run has failed")
        return done.seconds, done.cpu


def pack(repeats: int = 1, grid: Sequence[str] = MAIN) -> Iterator[Finding]:
    """Measure what sweep.pack=true saves: wall time and CPU time of the main sweep, packed and unpacked.

    The two sides are interleaved, medians are shown; CPU time is that of all processes.
    """
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
