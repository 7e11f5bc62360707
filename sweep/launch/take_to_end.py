"""Compute the runs of an open sweep and wait for them."""

from __future__ import annotations

from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.directory.sweep_directory import Sweep
from sweep.driver.drive import Drive
from sweep.driver.request_handler import RequestHandler
from sweep.launch import detach
from sweep.launch.opening import open_runs
from sweep.launch.session import Session
from sweep.launch.submit_and_leave import submit_and_leave
from sweep.launch.sweep_events import SweepEvents
from sweep.settings.resolved_point import ResolvedPoint
from sweep.system.signals import Interrupted


def run_or_leave(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint], *, wait: bool) -> None:
    """Compute the runs of an open sweep; without `wait`, leave them to SLURM or to a process of its own."""
    if wait:
        take_to_end(session, sweep, points)
    elif next(iter(points.values())).config["launcher"]["cluster"] == "local":
        detach.start_detached(session, sweep, points)
    else:
        submit_and_leave(session, sweep, points)


def take_to_end(session: Session, sweep: Sweep, points: dict[Run, ResolvedPoint]) -> None:
    """Compute what is missing of these runs and wait for it.

    Raises:
        UsageError: a scheduler refuses the runs.
        Interrupted: by a signal; what was started has been ended, or SLURM's jobs go on.
    """
    settings = next(iter(points.values())).settings
    if session.events is None:
        session.events = SweepEvents(sweep.directory, settings, session.choose_verbosity(settings))
    events = session.events
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
        if began:
            session.runs.extend(drive.points)  # also those that were added meanwhile
