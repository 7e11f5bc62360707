"""Compute what is missing of a sweep: what was not begun, failed, was cut off or cancelled.

Everything is taken from the runs' config.yaml, Hydra is not needed. While a launcher runs the sweep, it is asked to
take up again what has failed meanwhile. Runs that were cancelled by their name are left out, unless they are named
here, or --all is given. Progress, Ctrl-C, exit status, --quiet and --json are those of multirun.py."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gradsweep import run_directory, targets
from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import read_lock_owner
from gradsweep.text import plural
from sweep.commands.ask_launcher import ask, take_over
from sweep.console import events
from sweep.console.console import Verbosity
from sweep.console.flags import Flags
from sweep.console.messages import print_line
from sweep.directory import completion, restore_runs, result_check, scheduler_job
from sweep.directory.description import describe_command, explain_torn, read_fact
from sweep.directory.requests import RESUME, Request, describe_sender
from sweep.directory.sweep_directory import Sweep
from sweep.launch.conclude import conclude, report_interrupted
from sweep.launch.prepare_data import prepare_data
from sweep.launch.races import race_sweep
from sweep.launch.session import Session
from sweep.launch.take_to_end import run_or_leave
from sweep.launchers import schedulers
from sweep.planning.load_point import check_point
from sweep.provenance import user_code
from sweep.provenance.file_owners import refuse_strangers
from sweep.status import find
from sweep.system.signals import Interrupted, raise_on_signals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    find.add_words(parser, "the runs to resume; default: all that are not finished")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--failed", action="store_true", help="only what failed or ran out of time, nothing that waits")
    which.add_argument("--all", action="store_true", help="also runs that were cancelled by their name")
    parser.add_argument("--no-wait", dest="wait", action="store_false", help="begin, and leave it to the background")
    parser.add_argument("--trust", action="store_true", help="also a sweep of another user, which runs what it says")
    parser.add_argument("--quiet", action="store_true", help="only what went wrong, and a line at the end")
    parser.add_argument("--json", action="store_true", help="events as JSON lines (docs/reference/events.md)")


def run(options: argparse.Namespace) -> int:
    session = Session(Flags(options.quiet, options.json, options.trust))
    with raise_on_signals():
        try:
            return _resume(options, session)
        except Interrupted as interrupted:
            report_interrupted(interrupted, session)
            raise
        except OSError as error:
            if not session.runs or (line := disk_errors.describe(error)) is None:
                raise
            print(line, file=sys.stderr)
            return 1


def _resume(options: argparse.Namespace, session: Session) -> int:
    """Compute the missing runs, or ask the sweep's launcher to do so; return the exit status."""
    directory, words = find.find_sweep(options.words)
    runs = find.choose_runs(directory, words, [each.name for each in restore_runs.list_missing(directory)])
    everything = bool(options.all or words)
    while True:
        if (by := read_lock_owner(directory)) is not None:
            wanted = [each for each in runs if is_wanted(each, everything, options.failed)]
            waiting = (run_directory.PENDING, run_directory.RUNNING)
            ended = {each for each in wanted if each.status() not in waiting or not each.directory.exists()}
            if not wanted or ask(directory, Request(RESUME, tuple(each.name for each in wanted), describe_sender())):
                taken = [each for each in ended if each.status() in (*waiting, *run_directory.COMPLETE)]
                line = f"{plural(len(taken), 'run')} taken up again by pid {by.get('pid')}, which runs this sweep"
                _report(session.choose_verbosity(), [line], len(taken), pid=by.get("pid"))
                return 0
            continue
        refuse_strangers(directory, runs)
        if (sweep := take_over(directory)) is not None:
            session.directory = directory
            return _compute(session, sweep, runs, options, everything)


def is_wanted(run: Run, everything: bool, failed: bool, lost: bool = False) -> bool:
    """Tell whether a resume computes a run, judged by the run's state.

    Args:
        everything: also compute a run that a user has cancelled by name.
        failed: only compute a run that a fault has ended: failed, timed out, lost, or ended with a recorded cause.
        lost: no process works on the run, even if its state says that it is running.
    """
    if completion.is_complete(run):
        return False
    if not failed:
        return everything or not is_left_out(run)
    state = run.state()
    status = state["status"]
    if status in (run_directory.FAILED, run_directory.TIMEOUT) or (lost and status == run_directory.RUNNING):
        return True
    has_not_restarted = status in (run_directory.CANCELLED, run_directory.PREEMPTED) or (
        lost and status == run_directory.PENDING
    )
    return has_not_restarted and bool(state["attempts"]) and state["attempts"][-1].get("cause") is not None


def is_left_out(run: Run) -> bool:
    """Tell whether a user has cancelled the run by name."""
    state = run.state()
    return state["status"] == run_directory.CANCELLED and bool(state.get("left_out"))


def _compute(session: Session, sweep: Sweep, runs: Sequence[Run], options: argparse.Namespace, everything: bool) -> int:
    """Compute those of an open sweep's `runs` that are missing; return the exit status."""
    directory = sweep.directory
    try:
        chosen = {each.name for each in runs}
        again = restore_runs.lay_out_missing(directory, lambda name: name in chosen)
        owned = {
            each: job
            for each in runs
            if (job := scheduler_job.read_job(each)) is not None and not completion.is_complete(each)
        }
        alive = schedulers.find_living_jobs(owned.values())
        wanted = [
            each for each in runs if is_wanted(each, everything, options.failed, lost=owned.get(each) not in alive)
        ]
        flaws = [
            f"{os.path.relpath(directory)}: {flaw}"
            for flaw in (explain_torn(directory), planned_runs.flaw(directory))
            if flaw
        ]
        for each in filter(completion.is_complete, runs):
            if (result := each.result()) and (lacking := result_check.explain_lacking(each, result)):
                flaws.append(f"{os.path.relpath(each.directory)}: {each.status()}, but {lacking}")
        _search_user_code(directory)
        configs = {}
        for each in wanted:
            try:
                configs[each] = completion.load_config(each)
            except UsageError as error:
                flaws.append(str(error))
        for flaw in flaws:
            print(flaw, file=sys.stderr)
        points = {each: check_point(each, config) for each, config in configs.items()}
        first = next(iter(points.values()), None)
        verbosity = session.choose_verbosity(None if first is None else first.settings)
        _report_left_out(directory, runs, wanted, verbosity)
        if again:
            line = f"{plural(len(again), 'run')} laid out again, of which the directory was not there"
            print_line(verbosity.info(), line)
        if first is not None:
            prepare_data(list(configs.values()))
            describe_command(directory, first.mpi.resolve_command())
            run_or_leave(session, sweep, points, wait=options.wait)
            if not options.wait:
                return int(bool(flaws))
        else:
            race_sweep(session, directory, {})
    finally:
        sweep.close()
    status = conclude(session)
    return int(bool(status or flaws) or not all(run_directory.is_fine(each.state()) for each in runs))


def _search_user_code(directory: Path) -> None:
    """Have this process and its children look for the user's code where the sweep's last command has found it."""
    recorded = read_fact(directory, user_code.FACT)
    directories = recorded.get("directories") if isinstance(recorded, dict) else None
    if isinstance(directories, list) and directories:
        os.environ.setdefault(targets.USER_CODE, os.pathsep.join(map(str, directories)))


def _report_left_out(directory: Path, runs: Sequence[Run], wanted: Sequence[Run], verbosity: Verbosity) -> None:
    """Print how many runs stay cancelled, and a line if there is nothing to resume."""
    chosen = set(wanted)
    left_out = [each for each in runs if each not in chosen and is_left_out(each)]
    lines = []
    if left_out:
        lines.append(f"{plural(len(left_out), 'run')} cancelled by name and left out; --all takes them up again")
    if not wanted:
        lines.append(f"{os.path.relpath(directory)}: nothing to resume of {plural(len(runs), 'run')}")
    if lines:
        _report(verbosity, lines, len(wanted), left_out=len(left_out))


def _report(
    verbosity: Verbosity, lines: Sequence[str], runs: int, *, left_out: int = 0, pid: int | None = None
) -> None:
    """Report the progress of a resume, in lines for people or as an event."""
    if verbosity.json:
        events.print_event(events.RUNS_TAKEN_UP, runs=runs, left_out=left_out, pid=pid)
    for line in lines:
        print_line(verbosity.info(), line)
