"""A part of benchmarks/sweep.py: what the launcher adds to mpirun."""

from __future__ import annotations

import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import PROGRAM, Finding, quote_list, time_command
from sweep.settings.mpi import MpiSettings

# the rank's result is written by a shell: what is timed is everything around a rank
RANK = """[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] && echo '{"status": "done"}' > "$4/result.json"; true"""


def measure_added(runs: int = 8, repeats: int = 5) -> Iterator[Finding]:
    """Measure what a run costs beyond its mpirun, and how quickly the command line answers.

    - `--help`, `--cfg job`: wall time of the command, and of an empty Python for comparison.
    - What one more run costs in a sweep, against one more mpirun in a shell loop: the difference between
      sweeps of 2 x `--runs` and of `--runs` runs, one after the other, whose ranks do nothing (a shell script
      through mpi.command), so that composing, starting, watching and reporting are timed, and no training.

    Repeats of the two sides are interleaved, the first is a warm-up; medians are shown.
    """
    # as in conf/mpi, without what chooses transports
    mpirun = MpiSettings(["mpirun", "--bind-to", "none", "--oversubscribe", "-n", "{workers}"]).resolve_command()
    bare = shlex.join(mpirun).replace("'{workers}'", "2")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "rank.sh")
        script.write_text(f"#!/bin/sh\n{RANK}\n")
        script.chmod(0o755)
        sweep = [*PROGRAM, "-m", f"mpi.command={quote_list([*mpirun, str(script)])}", "sweep.max_parallel=1"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "multirun.py --help": [*PROGRAM, "--help"],
            "multirun.py --cfg job": [*PROGRAM, "--cfg", "job"],
        }
        for count in (runs, 2 * runs):
            commands[f"{count} x mpirun"] = ["sh", "-c", f"for i in $(seq {count}); do {bare} true; done"]
        for count in (runs, 2 * runs):
            commands[f"sweep of {count} runs"] = [*sweep, f"seed=range({count})", "experiment=quick"]
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(repeats + 1):
            for name, command in commands.items():
                times[name].append(time_command(command, Path(folder)).seconds)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    for name, median in medians.items():
        yield Finding(name, median)
    alone = (medians[f"{2 * runs} x mpirun"] - medians[f"{runs} x mpirun"]) / runs
    swept = (medians[f"sweep of {2 * runs} runs"] - medians[f"sweep of {runs} runs"]) / runs
    more = f"mpirun {alone:.3f} s, in a sweep {swept:.3f} s"
    yield Finding("one more run, beyond its mpirun", swept - alone, "s", 0.3, more)
