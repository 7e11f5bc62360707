"""What the launcher adds to mpirun, and how quickly the command line answers.

    python benchmarks/launcher.py [--runs 8] [--repeats 5]

- `--help`, `--cfg job`: wall time of the command, and of an empty Python for comparison.
- What one more run costs in a sweep, against one more mpirun in a shell loop: the difference between
  sweeps of 2 x `--runs` and of `--runs` runs, one after the other, whose ranks do nothing (a shell script
  through mpi.command), so that composing, starting, watching and reporting are timed, and no training.

Repeats of the two sides are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sweep.settings import MpiSettings  # noqa: E402

# the rank's result is written by a shell: what is timed is everything around a rank
RANK = """[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] && echo '{"status": "done"}' > "$4/result.json"; true"""


def seconds(command: list[str], cwd: str) -> float:
    """Wall time of a command that has to succeed."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    began = time.perf_counter()
    subprocess.run(command, cwd=cwd, env=environment, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    sizes = (arguments.runs, 2 * arguments.runs)
    mpirun = MpiSettings(["mpirun", "--bind-to", "none", "--oversubscribe", "-n", "{workers}"]).program()
    program = [sys.executable, str(ROOT / "multirun.py")]
    fake = ",".join(f'"{word}"' if "{" in word else word for word in mpirun)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "rank.sh")
        script.write_text(f"#!/bin/sh\n{RANK}\n")
        script.chmod(0o755)
        command = " ".join(mpirun).replace("{workers}", "2")

        def loop(runs: int) -> list[str]:
            return ["sh", "-c", f"for i in $(seq {runs}); do {command} true; done"]

        def sweep(runs: int) -> list[str]:
            grid = [f"mpi.command=[{fake},{script}]", f"seed=range({runs})", "sweep.max_parallel=1", "experiment=quick"]
            return [*program, "-m", *grid]

        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "multirun.py --help": [*program, "--help"],
            "multirun.py --cfg job": [*program, "--cfg", "job"],
            **{f"{runs} x mpirun": loop(runs) for runs in sizes},
            **{f"sweep of {runs} runs": sweep(runs) for runs in sizes},
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.repeats + 1):  # the first is a warm-up
            for name, command in commands.items():
                times[name].append(seconds(command, folder))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:26} {median:7.3f} s")
    bare, swept = (
        (medians[name.format(sizes[1])] - medians[name.format(sizes[0])]) / arguments.runs
        for name in ("{} x mpirun", "sweep of {} runs")
    )
    print(f"one more run: mpirun {bare:.3f} s, in a sweep {swept:.3f} s, added {swept - bare:.3f} s")


if __name__ == "__main__":
    main()
