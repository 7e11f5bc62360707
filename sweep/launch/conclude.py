"""The end of a command that has computed runs: report, last event, failures, and how to resume."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gradsweep import run_directory
from gradsweep.text import plural
from sweep.console.console import Verbosity
from sweep.console.messages import build_report_command, print_line, show_failures
from sweep.directory import completion, restore_runs
from sweep.launch.session import Session
from sweep.launch.sweep_events import SweepEvents
from sweep.system.job_environment import build_python_environment
from sweep.system.signals import Interrupted

REPORT = "report.html"


def conclude(session: Session) -> int:
    """Write the report and the last event of a session's sweep, show failures, and return the exit status, 0 or 1."""
    if session.events is None or not session.runs:
        return 0
    try:
        failed = int(not _show(session, session.events))
        session.events.end(session.runs, failed)
    except Interrupted as interrupted:
        session.events.end(session.runs, int(interrupted.code or 1))
        raise
    return failed


def _show(session: Session, events: SweepEvents) -> bool:
    """Write the report and show failures; return whether it was written and every run ended well."""
    directory, verbosity = events.directory, events.verbosity
    is_written = write_report(directory, verbosity)
    unfinished = [run for run in dict.fromkeys(session.runs) if not run_directory.is_fine(run.state())]
    show_failures(unfinished, verbosity.errors(), session.build_resume_command(directory))
    if session.failed_races and not unfinished:
        command = session.build_resume_command(directory)
        print_line(verbosity.errors(), f"\nTo repeat {plural(session.failed_races, 'race')}:\n  {command}")
    best = events.name_best(session.runs) if session.is_growing else None  # the points of a grid are no search
    if best is not None:
        print_line(verbosity.info(), best)
    if verbosity.quiet and not verbosity.json:
        print_line(verbosity.errors(), best or events.summarise(session.runs))
    return is_written and not unfinished and not session.failed_races


def write_report(directory: Path, verbosity: Verbosity) -> bool:
    """Write a sweep's report in another process, unless it is up to date; return whether it is up to date now."""
    if _is_report_current(directory):
        print_line(verbosity.info(), f"nothing has changed since {os.path.relpath(directory / REPORT)}")
        return True
    return run_reports([str(directory)], verbosity)


def run_reports(arguments: Sequence[str], verbosity: Verbosity) -> bool:
    """Run `python -m reports` with these arguments; return whether it succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "reports", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if verbosity.is_terse else None,
        env={**os.environ, **build_python_environment()},
        check=False,
        start_new_session=True,  # Ctrl-C comes to us, and we end it, without its traceback
    )
    return not done.returncode


def _is_report_current(directory: Path) -> bool:
    """Tell whether a report exists that is newer than the states of all runs."""
    try:
        written = (directory / REPORT).stat().st_mtime_ns
        runs = [*run_directory.runs_of(directory), *run_directory.runs_of(directory, run_directory.RACES)]
        return all(run.path(run_directory.STATE).stat().st_mtime_ns < written for run in runs)
    except OSError:
        return False


def report_interrupted(interrupted: Interrupted, session: Session) -> None:
    """Print the command that resumes the session's sweep, unless it was printed already or nothing was written."""
    directory = session.directory
    if interrupted.reported or directory is None or not (directory / run_directory.SWEEP).is_file():
        return
    interrupted.reported = True
    goes_on = session.is_growing or session.is_racing
    finished = not goes_on and all(map(completion.is_complete, run_directory.runs_of(directory)))
    if finished and not restore_runs.list_missing(directory):
        what, command = "interrupted; all runs are computed. To report on them", build_report_command(directory)
    else:
        what, command = "interrupted. To go on", session.build_resume_command(directory)
    with suppress(OSError):  # a terminal that has gone
        print(f"\n{what}:\n  {command}", file=sys.stderr, flush=True)
