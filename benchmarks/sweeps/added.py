"""What the launcher adds to mpirun, and how quickly the command line answers.

- `--help`, `--cfg job`: wall time of the command, and of an empty Python for comparison.
- What one more run costs in a sweep, against one more mpirun in a shell loop: the difference between
  sweeps of 2 x `--runs` and of `--runs` runs, one after the other, whose ranks do nothing (a shell script
  through mpi.command), so that composing, starting, watching and reporting are timed, and no training.

Repeats of the two sides are interleaved, the first is a warm-up; medians are shown.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweeps.measuring import PROGRAM, Finding, quoted, timed
from sweep.settings.mpi import MpiSettings

ASKED_S = 0.3

# the rank's result is written by a shell: what is timed is everything around a rank
RANK = """[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] && echo '{"status": "done"}' > "$4/result.json"; true"""


def mpirun() -> list[str]:
    """The command as conf/mpi has it, with {workers} in it, without what picks transports."""
    return MpiSettings(["mpirun", "--bind-to", "none", "--oversubscribe", "-n", "{workers}"]).resolve_command()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    sizes = (given.runs, 2 * given.runs)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "rank.sh")
        script.write_text(f"#!/bin/sh\n{RANK}\n")
        script.chmod(0o755)
        command = shlex.join(mpirun()).replace("'{workers}'", "2")

        def loop(runs: int) -> list[str]:
            return ["sh", "-c", f"for i in $(seq {runs}); do {command} true; done"]

        def sweep(runs: int) -> list[str]:
            command = f"mpi.command={quoted([*mpirun(), str(script)])}"
            return [*PROGRAM, "-m", command, f"seed=range({runs})", "sweep.max_parallel=1", "experiment=quick"]

        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "multirun.py --help": [*PROGRAM, "--help"],
            "multirun.py --cfg job": [*PROGRAM, "--cfg", "job"],
            **{f"{runs} x mpirun": loop(runs) for runs in sizes},
            **{f"sweep of {runs} runs": sweep(runs) for runs in sizes},
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(given.repeats + 1):
            for name, command in commands.items():
                times[name].append(timed(command, Path(folder)).seconds)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    for name, median in medians.items():
        yield Finding(name, median)
    bare, swept = (
        (medians[name.format(sizes[1])] - medians[name.format(sizes[0])]) / given.runs
        for name in ("{} x mpirun", "sweep of {} runs")
    )
    more = f"mpirun {bare:.3f} s, in a sweep {swept:.3f} s"
    yield Finding("one more run, beyond its mpirun", swept - bare, "s", ASKED_S, more)
