"""A part of benchmarks/sweep.py: how much of two slots many short runs use."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Finding
from sweep.attempts.run_task import RunTask
from sweep.executors.base import POLL_S
from sweep.executors.local import SlotExecutor

RANK = """sleep {seconds}; for last; do :; done; echo '{{"status": "done"}}' > "$last/result.json" """


def sweep(folder: Path, runs: int, slots: int, seconds: float) -> None:
    """Take so many runs to their end on the first `slots` cores, which sweeps in folders beside `folder` share.

    Raises:
        RuntimeError: a run was not done.
    """
    os.environ["GRADSWEEP_SLOTS"] = str(folder.parent / "slots")
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
    if reasons := [job.reason for job in jobs if job.status != "done"]:
        raise RuntimeError(reasons[0])


def slots(runs: int = 100, slots: int = 2, seconds: float = 1.0, sweeps: int = 1) -> Iterator[Finding]:
    """Measure how much of two slots 100 short runs use: wall time over that of a machine that starts them at no cost.

    Each run is a shell that sleeps and writes a result, started through `sweep.executors.local.SlotExecutor` with all
    that a run has: its directory, its attempt, state.json before and after, leases. With `--sweeps 2`, two processes
    share the slots and the runs. Cores are only slept on, so other load on the machine disturbs little.
    """
    shares = [(runs + number) // sweeps for number in range(sweeps)]
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        processes = [
            fork.Process(target=sweep, args=(Path(folder, f"sweep-{number}"), share, slots, seconds))
            for number, share in enumerate(shares)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise SystemExit("a sweep failed")
        ratio = (time.perf_counter() - began) / (-(-runs // slots) * seconds)
    several = f", {sweeps} sweeps" if sweeps > 1 else ""
    what = f"{runs} runs of {seconds:g} s on {slots} slots{several}, by the ideal"
    yield Finding(what, ratio, "", 1.15 if (runs, slots, seconds, sweeps) == (100, 2, 1.0, 1) else None)
