"""The steps before the first run is submitted, the same for runs here, in a detached process, or on SLURM.

Then `take_to_end.py` lets a Drive compute the runs, or only submits them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.build_task import TaskBuilder
from sweep.attempts.run_task import RunTask
from sweep.console.messages import print_line
from sweep.directory.completion import list_unfinished
from sweep.directory.description import add_to_description
from sweep.directory.run_state import include
from sweep.driver import pruner
from sweep.executors.base import RunExecutor
from sweep.executors.packed.fork_server import ForkServers
from sweep.executors.slots import LockedSlots
from sweep.launchers.launchers import build_executor
from sweep.planning import reuse
from sweep.planning.estimate import Estimator
from sweep.planning.order import arrange_runs
from sweep.provenance import user_code
from sweep.provenance.calibration import measure_core
from sweep.settings.resolved_point import ResolvedPoint


def open_runs(
    directory: Path, points: Mapping[Run, ResolvedPoint], console: Console, fork_servers: ForkServers | None = None
) -> tuple[TaskBuilder, RunExecutor]:
    """Copy earlier results of the same runs, calibrate the machine, and return the task builder and the executor.

    This process must hold the lock of the sweep in `directory`. `points` must not be empty, and the caller may add
    further points to it later.

    Raises:
        UsageError: the snapshot cannot be written.
    """
    first = next(iter(points.values()))
    settings = first.settings
    if settings.prune is None:
        pruner.revive_pruned(points)
    tasks = TaskBuilder(directory, keep_code=settings.snapshot)
    _note_user_code(directory, points)
    if settings.reuse:
        taken = reuse.take_finished(directory, points, tasks.version)
        print_line(console, f"{os.path.relpath(directory)}: {len(taken)} runs taken from earlier sweeps")
    missing = list_unfinished(points)
    for run in missing:
        include(run)
    if missing:
        add_to_description(directory, calibration=calibrate())
    estimator = Estimator(directory)
    estimated: dict[Run, float | None] = {}

    def estimate(task: RunTask) -> float | None:
        if task.run not in estimated:
            estimated[task.run] = estimator.estimate_seconds(points[task.run].config)
        return estimated[task.run]

    def arrange(queued: Sequence[RunTask]) -> Sequence[RunTask]:
        if len(queued) < 2:
            return queued
        return [queued[place] for place in arrange_runs([(points[task.run].config, estimate(task)) for task in queued])]

    known = estimate if len(missing) > 1 else None  # with one run nothing depends on its length
    return tasks, build_executor(first.options, directory, settings, known, arrange, fork_servers)


def _note_user_code(directory: Path, points: Mapping[Run, ResolvedPoint]) -> None:
    """Read the code of the user that the runs need, and record its directories in sweep.yaml for a later resume.

    Raises:
        UsageError: code that a config names is not there.
    """
    found = [code for point in points.values() if (code := user_code.find(point.config)) is not None]
    directories = dict.fromkeys(str(code.root) for each in found for code in each.codes)
    if directories:
        add_to_description(directory, **{user_code.FACT: {"directories": list(directories)}})


def calibrate() -> dict[str, Any]:
    """Measure the speed of a core, which is leased meanwhile if one is free; return the result of `measure_core`."""
    with ExitStack() as stack:
        lease = None
        with suppress(UsageError):  # a caller that needs slots reports it
            lease = stack.enter_context(closing(LockedSlots(sweep="calibration"))).lease(1, first=False)
        if lease is None:
            return measure_core(sorted(os.sched_getaffinity(0)), core_was_free=False)
        return measure_core(lease.cores, lease.descriptors, core_was_free=True)
