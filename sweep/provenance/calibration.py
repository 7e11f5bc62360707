"""Measure the present speed of this machine, so that the times of two sweeps can be compared.

    python -m sweep.provenance.calibration

One core is measured in a separate process, because libraries read the number of threads when they are loaded. Each
number is the best of several measurements, as other programs can only slow down a machine; `steadiness` tells how much
they did.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from gradsweep import files
from gradsweep.run_directory import THREAD_VARIABLES
from sweep.system.job_environment import build_python_environment
from sweep.system.processes import prepare_child

BUDGET_S = 0.07  # for each measurement
REPEATS = (3, 50)  # of each at least and at most
PATIENCE_S = 20.0
COPIED = 1 << 25  # bytes: more than a core's share of the caches
SIDE = 256  # of the matrices
ROUNDS = 20_000  # of the loop


def calibrate_own(cores: Sequence[int]) -> dict[str, Any]:
    """Measure the first of `cores`, which only this process uses.

    If `cores` is empty, the kernel chooses the core, and it is unknown whether that core was free.

    Returns:
        As `measure_core`.
    """
    if cores:
        return measure_core(cores[:1], core_was_free=True)
    return measure_core(sorted(os.sched_getaffinity(0)), core_was_free=None)


def measure_core(
    cores: Sequence[int], descriptors: Sequence[int] = (), *, core_was_free: bool | None
) -> dict[str, Any]:
    """Measure one core in another process, in less than half a second.

    Args:
        cores: the process may run on these cores, and uses one of them.
        descriptors: the open files of a lease's locks, which the process inherits.

    Returns:
        `copy_gb_s`: 10^9 bytes per second read and written by a copy in main memory; `matmul_gflop_s`: 10^9 operations
        per second in a product of float32 matrices; `loop_mops`: 10^6 iterations per second of a loop in Python;
        `steadiness`: the best time divided by the median time, of the measurement for which this is lowest (1:
        undisturbed); `core_was_free`: whether no run had the core; `host`; `cores`: as the argument; `time`. Empty if
        the measurement has failed.
    """
    command = [sys.executable, "-m", "sweep.provenance.calibration", *map(str, cores)]
    environment = {**os.environ, **build_python_environment(), **dict.fromkeys(THREAD_VARIABLES, "1")}
    parent = os.getpid()
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
            pass_fds=descriptors,
            preexec_fn=lambda: prepare_child(cores, parent),  # it ends with this process
        )
        measured = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    where = {"host": socket.gethostname(), "cores": list(cores), "time": files.now()}
    return {**measured, "core_was_free": core_was_free, **where}


def time_repeatedly(work: Callable[[], object]) -> list[float]:
    """Call `work` once untimed, then repeatedly for `BUDGET_S` seconds; return the seconds of each call, sorted."""
    work()
    times: list[float] = []
    deadline = time.perf_counter() + BUDGET_S
    while len(times) < REPEATS[0] or (len(times) < REPEATS[1] and time.perf_counter() < deadline):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return sorted(times)


def _run_loop() -> int:
    total = 0
    for number in range(ROUNDS):
        total += number & 1
    return total


def measure() -> dict[str, float]:
    """Measure the core on which this process runs; return the rates and the steadiness (see `measure_core`)."""
    import numpy as np  # here: a caller of `measure_core` need not load it

    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    left, right = (np.random.default_rng(seed).random((SIDE, SIDE), np.float32) for seed in (1, 2))
    product = np.empty_like(left)
    times = {
        "copy_gb_s": (2 * COPIED / 1e9, time_repeatedly(lambda: np.copyto(target, source))),
        "matmul_gflop_s": (2 * SIDE**3 / 1e9, time_repeatedly(lambda: np.matmul(left, right, out=product))),
        "loop_mops": (ROUNDS / 1e6, time_repeatedly(_run_loop)),
    }
    rates = {name: float(f"{amount / best:.4g}") for name, (amount, (best, *_)) in times.items()}
    return {**rates, "steadiness": round(min(best[0] / statistics.median(best) for _, best in times.values()), 3)}


def main() -> None:
    """Print `measure()` as JSON for the cores in the arguments, or for all cores."""
    os.sched_setaffinity(0, [int(core) for core in sys.argv[1:]] or os.sched_getaffinity(0))
    print(json.dumps(measure()))


if __name__ == "__main__":
    main()
