"""Probes: measure the network of each point of a grid, one point after the other, without training.

A probe has a directory like a run, with config.yaml and state.json, but in probes/ and without a sweep.yaml, so that
commands for sweeps and runs do not list it.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.cli.command_names import find_script
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import Run
from gradsweep.source_tree import ROOT
from gradsweep.text import plural
from sweep.attempts.build_task import TaskBuilder
from sweep.attempts.run_task import RunTask
from sweep.console import flags
from sweep.console.console import Verbosity
from sweep.console.messages import print_line, print_log_end
from sweep.directory import run_layout
from sweep.directory.sweep_directory import Sweep
from sweep.executors.base import POLL_S, RunExecutor
from sweep.launch.conclude import run_reports
from sweep.launch.session import Session
from sweep.launchers.launchers import build_executor
from sweep.provenance import record
from sweep.system import signals

if TYPE_CHECKING:
    from sweep.planning.points import Points

MODULE = "trainers.training.probe"


def probe_points(
    session: Session,
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    directory: Path,
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    fresh: bool,
    whole: bool = True,
) -> list[Run | None]:
    """Measure for each point the network that its training would use; replaces `sweep.launch.execute.execute`.

    Raises:
        UsageError: a point cannot be probed; nothing was started.
        Interrupted: by a signal; everything that was started has been ended.
        SystemExit: a probe has failed; the failure has been printed.
    """
    points = _check(configs, overrides, resolve, whole, session.flags.is_terse)
    seconds, verbosity = session.flags.probe_s, session.choose_verbosity(points.settings)
    sweep = Sweep(directory, fresh=fresh)
    try:
        if any(
            (sweep.directory / name).exists()
            for name in (run_directory.SWEEP, run_directory.RUNS, run_directory.PROBES)
        ):
            raise bad_value("hydra.sweep.dir", directory, "a directory without a sweep or probes")
        description = record.describe(points.mpi.resolve_command())
        runs = run_layout.lay_out(sweep.directory, points.points, run_directory.PROBES)
        wanted = dict(zip(runs, points.points, strict=True))  # equal points are one
        tasks = TaskBuilder(sweep.directory, keep_code=points.settings.snapshot, about=description)
        executor = build_executor(points.points[0].options, sweep.directory, points.settings)
        about = f"about {seconds:g} s" if len(wanted) == 1 else f"about {seconds:g} s each, one after the other"
        print_line(verbosity.info(), f"{os.path.relpath(sweep.directory)}: {plural(len(wanted), 'probe')}, {about}")
        failed = 0
        for run, point in wanted.items():
            task = dataclasses.replace(
                tasks(run, point), module=[MODULE, f"{seconds:g}"], workers=point.config["workers"], gpus=0
            )
            failed += not _run_probe(executor, task, verbosity)
    except (UsageError, signals.Interrupted) as ended:
        if not (isinstance(ended, signals.Interrupted) and ended.reported):  # nothing was started
            sweep.forget()
        raise
    finally:
        sweep.close()
    if failed:
        raise SystemExit(1)
    return [None] * len(configs)


def _check(
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    whole: bool,
    silent: bool,
) -> Points:
    """Check the points of a grid as `check_points` does, and check that they can be probed.

    Raises:
        UsageError: a point cannot be probed.
    """
    from sweep.planning.points import check_points  # with Hydra

    if not whole:
        raise bad_value("hydra/sweeper", "one that goes by results", "grid, where the network is probed")
    points = check_points(configs, overrides, resolve, silent=silent)
    settings = points.settings
    if settings.resume is not None:
        raise bad_value("sweep.resume", settings.resume, "null, where the network is probed")
    for key, valid in (("dry_run", False), ("wait", True), ("pack", False)):
        if getattr(settings, key) is not valid:
            raise bad_value(
                f"sweep.{key}", str(not valid).lower(), f"{str(valid).lower()}, where the network is probed"
            )
    for point in points.points:
        if point.config["workers"] < 2:
            raise bad_value("workers", point.config["workers"], "an integer from 2 up: a network is between two")
    return points


def _run_probe(executor: RunExecutor, task: RunTask, verbosity: Verbosity) -> bool:
    """Run a probe to its end and print its measurements; return whether it has measured anything."""
    try:
        with signals.defer_interrupts():
            (job,) = executor.submit_runs([task])
            while not job.ended:
                signals.raise_deferred()
                executor.poll()
                time.sleep(POLL_S)
    except signals.Interrupted as interrupted:
        interrupted.reported = True
        print_line(verbosity.errors(), "\ninterrupted; the probe has been ended", "yellow")
        raise
    finally:
        executor.cancel_all("interrupted")
    run = task.run
    if job.status == run_directory.DONE:
        path = os.path.relpath(run.path(run_directory.NETWORK))
        is_drawn = run_reports(["network", path], verbosity)
        if verbosity.is_terse:
            print_line(verbosity.errors(), path)
        return is_drawn
    print_line(verbosity.errors(), f"{job.status}: {os.path.relpath(run.directory)}: {job.reason}", "bold red")
    for number in run.attempt_numbers()[-1:]:
        print_log_end(verbosity.errors(), run.attempt(number) / run_directory.STDERR)
    return False


def build_command(seconds: float, overrides: Sequence[str]) -> list[str]:
    """Return the command line, of multirun.py or `gradsweep`, that probes the network of the points of `overrides`."""
    program = find_script() or str(ROOT / "multirun.py")
    return [sys.executable, program, f"{flags.PROBE}={seconds:g}", "-m", *overrides]
