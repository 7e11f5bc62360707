"""Compute the runs of an open sweep: in this process, in a detached process, or in SLURM jobs without a launcher."""

from __future__ import annotations

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.console.events import Events
from sweep.console.messages import report_left
from sweep.directory.completion import list_missing
from sweep.directory.run_state import include
from sweep.directory.sweep_directory import Sweep
from sweep.driver.drive import Drive
from sweep.driver.request_handler import RequestHandler
from sweep.launch import detach
from sweep.launch.opening import open_runs
from sweep.launch.races import race_sweep
from sweep.launch.session import Session
from sweep.settings.race import ONLY
from sweep.settings.resolved_point import ResolvedPoint
from sweep.system.signals import Interrupted


def run_or_leave(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint], *, wait: bool) -> None:
    """Compute and race the runs of an open sweep; without `wait`, leave that to SLURM jobs or a detached process."""
    is_local = next(iter(points.values())).config["launcher"]["cluster"] == "local"
    if next(iter(points.values())).race.mode == ONLY and (wait or not is_local):  # a race needs a launcher that waits
        session.runs.extend(points)
        for run in points:
            if run.status() == run_directory.PENDING:
                include(run, reason=run_directory.ONLY_RACED)
        race_sweep(session, sweep.directory, points)
    elif wait:
        take_to_end(session, sweep, points)
        if not session.is_growing and not session.is_stopped:  # a search goes by the results of its runs
            race_sweep(session, sweep.directory, points)
    elif is_local:
        detach.start_detached(session, sweep, points)
    else:
        submit_and_leave(session, sweep, points)


def submit_and_leave(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint]) -> None:
    """Submit the missing runs of an open sweep to SLURM, except those that have a job, and print how to follow them.

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


def take_to_end(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint]) -> None:
    """Compute the missing ones among these runs, and wait until they have ended.

    Raises:
        UsageError: a scheduler refuses the runs.
        Interrupted: by a signal; all started processes have been ended, but SLURM's jobs may continue.
    """
    settings = next(iter(points.values())).settings
    events = session.open_events(sweep.directory, settings)
    tasks, executor = open_runs(sweep.directory, points, events.verbosity.info(), session.fork_servers)
    drive = Drive(
        sweep.directory,
        points,
        tasks,
        executor,
        settings,
        verbosity=events.verbosity,
        events=events.events,
        resume_command=session.build_resume_command(sweep.directory),
    )
    began = True
    try:
        drive.run(RequestHandler(drive))
    except UsageError:
        began = bool(drive.jobs)  # else the runs were refused: nothing was started
        raise
    except Interrupted as interrupted:
        if not drive.left:
            events.end([*session.runs, *drive.points], int(interrupted.code or 1))
        raise
    finally:
        session.is_stopped |= drive.stopped
        if began:
            session.runs.extend(drive.points)  # also those that were added meanwhile
