"""Submit runs to SLURM and leave (sweep.wait=false): its jobs need no launcher that waits."""

from __future__ import annotations

from gradsweep.run_directory import Run
from sweep.console.events import Events
from sweep.console.messages import report_left
from sweep.directory.completion import list_missing
from sweep.directory.sweep_directory import Sweep
from sweep.launch.opening import open_runs
from sweep.launch.session import Session
from sweep.settings.resolved_point import ResolvedPoint


def submit_and_leave(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint]) -> None:
    """Submit those of the runs of an open sweep that are missing and have no job, and print how to follow them.

    Raises:
        UsageError: SLURM refuses or does not answer.
    """
    verbosity = session.choose_verbosity(next(iter(points.values())).settings)
    tasks, executor = open_runs(sweep.directory, points, verbosity.info())
    missing = list_missing(points, executor.reconcile)
    jobs = executor.submit_runs([tasks(run, points[run]) for run in missing])
    executor.leave()
    Events(sweep.directory, echo=verbosity.json).write_left("slurm", len(points), len(jobs), pid=None)
    report_left(
        sweep.directory,
        f"{len(jobs)} of {len(points)} runs are with SLURM, which goes on without this command",
        {"watch": "how far it is", "cancel": "end it", "resume": "what failed, again"},
        verbosity,
    )
