"""How much of two slots many short runs use: wall time over that of a machine on which starting costs nothing.

Each run is a shell that sleeps and writes a result, started through `sweep.executors.local.SlotExecutor` with all
that a run
has: its directory, its attempt, state.json before and after, leases. With `--sweeps 2`, two processes share the slots
and the runs. Cores are only slept on, so other load on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.sweeps.measuring import ROOT, Finding
from sweep.attempts.run_task import RunTask
from sweep.executors.base import POLL_S
from sweep.executors.local import SlotExecutor

ASKED = 1.15  # for 100 runs of a second on 2 slots
RANK = """sleep {seconds}; for last; do :; done; echo '{{"status": "done"}}' > "$last/result.json" """


def sweep(folder: Path, runs: int, slots: int, seconds: float) -> None:
    """Take so many runs to their end on the first `slots` cores.

    Raises:
        RuntimeError: a run was not done.
    """
    command = ["sh", "-c", RANK.format(seconds=seconds), "{workers}"]
    tasks = []
    for number in range(runs):
        (folder / f"run-{number}").mkdir(parents=True)
        tasks.append(RunTask(str(folder / f"run-{number}"), 1, 1, command, {}))
    executor = SlotExecutor(folder, sorted(os.sched_getaffinity(0))[:slots])
    jobs = executor.submit_runs(tasks)
    while executor.active:
        executor.poll()
        time.sleep(POLL_S)
    if any(job.status != "done" for job in jobs):
        raise RuntimeError(f"{[job.reason for job in jobs if job.status != 'done'][0]}")


def overhead(runs: int = 100, slots: int = 2, seconds: float = 1.0, sweeps: int = 1) -> float:
    """Wall time of the runs, shared by so many sweeps at the same time, over that of an ideal machine."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, GRADSWEEP_SLOTS=f"{folder}/slots"):
        began = time.perf_counter()
        if sweeps == 1:
            sweep(Path(folder, "sweep"), runs, slots, seconds)
        else:
            share = [(runs + number) // sweeps for number in range(sweeps)]
            arguments = [[f"{folder}/{number}", str(count)] for number, count in enumerate(share)]
            code = "import sys; from benchmarks.sweeps.slots import sweep, Path; "
            code += f"sweep(Path(sys.argv[1]), int(sys.argv[2]), {slots}, {seconds})"
            processes = [subprocess.Popen([sys.executable, "-c", code, *each], cwd=ROOT) for each in arguments]
            if any([process.wait() for process in processes]):
                raise RuntimeError("a sweep failed")
        return (time.perf_counter() - began) / (-(-runs // slots) * seconds)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sweeps", type=int, default=1)


def measure(given: argparse.Namespace) -> Iterator[Finding]:
    ratio = overhead(given.runs, given.slots, given.seconds, given.sweeps)
    several = f", {given.sweeps} sweeps" if given.sweeps > 1 else ""
    what = f"{given.runs} runs of {given.seconds:g} s on {given.slots} slots{several}, by the ideal"
    asked = ASKED if (given.runs, given.slots, given.seconds, given.sweeps) == (100, 2, 1.0, 1) else None
    yield Finding(what, ratio, "", asked)
