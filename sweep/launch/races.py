"""The races of a sweep, after its runs or instead of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from gradsweep.signature import signature
from gradsweep.text import plural
from sweep.attempts.build_task import TaskBuilder
from sweep.console.events import RACE_ENDED, RACE_STARTED
from sweep.console.messages import print_line
from sweep.directory.requests import CANCEL, Inbox, Request
from sweep.directory.run_layout import RunLocation, create_runs
from sweep.executors.base import POLL_S, Job, RunExecutor
from sweep.launch.session import Session
from sweep.launch.sweep_events import SweepEvents
from sweep.launchers.launchers import build_executor
from sweep.planning.load_point import load_point
from sweep.planning.races import RaceGroup, group_runs
from sweep.settings.race import AUTO, OFF, ONLY
from sweep.settings.resolved_point import ResolvedPoint
from sweep.system import signals
from sweep.system.signals import Interrupted

MODULE = "trainers.race"


def race_sweep(session: Session, directory: Path, points: Mapping[Run, ResolvedPoint]) -> None:
    """Race those runs of a sweep that have not raced yet, one race after another.

    Args:
        directory: of the sweep, whose lock this process holds.
        points: of its runs, as far as they were parsed before.

    Raises:
        Interrupted: by a signal; what was measured until then is kept.
    """
    known = dict(points)
    for run in run_directory.runs_of(directory):
        with suppress(UsageError):  # a damaged one, of which a report tells
            known.setdefault(run, load_point(run))
    missing = find_missing_races(directory, known)
    if not missing:
        return
    first = known[missing[0].baseline]
    events = session.open_events(directory, first.settings)
    is_local = first.config["launcher"]["cluster"] == "local"
    settings = dataclasses.replace(first.settings, pack=is_local)  # a race is a job of SLURM by itself
    session.runs.extend(run for group in missing for served in group.racers.values() for run in served)
    session.is_racing = True
    try:
        executor = build_executor(first.options, directory, settings, fork_servers=session.fork_servers)
        tasks = TaskBuilder(directory, keep_code=settings.snapshot)
        try:
            inbox = Inbox(directory)
            for number, group in enumerate(missing, 1):
                title = f"[race {number}/{len(missing)}]"
                status = _run_race(executor, tasks, group, known, title, events, inbox)
                session.failed_races += status != run_directory.DONE
                if status == run_directory.CANCELLED:
                    break
        finally:
            executor.cancel_all("interrupted")
    except Interrupted as interrupted:
        events.end(session.runs, int(interrupted.code or 1))
        raise
    session.is_racing = False


def find_missing_races(directory: Path, points: Mapping[Run, ResolvedPoint]) -> list[RaceGroup]:
    """Return the races of a sweep that must be run, or run again."""
    mode = next((point.race.mode for point in points.values()), OFF)
    wanted = {run: point for run, point in points.items() if mode == ONLY or (mode == AUTO and _is_done(run))}
    return [group for group in group_runs(directory, wanted) if not _is_raced(group)]


def _is_done(run: Run) -> bool:
    return run.status() == run_directory.DONE


def _is_raced(group: RaceGroup) -> bool:
    """Tell whether the race of a group has come to its end, and its measurements are there."""
    race = Run(group.directory)
    return group.is_planned() and race.result() is not None and bool(files.read_json(race.path(run_directory.RATIOS)))


def _run_race(
    executor: RunExecutor,
    tasks: TaskBuilder,
    group: RaceGroup,
    points: Mapping[Run, ResolvedPoint],
    title: str,
    reports: SweepEvents,
    inbox: Inbox,
) -> str:
    """Run one race, and repeat it without runs that fail in it; return the status in which it has ended."""
    point = points[group.baseline]
    about = {"race": group.directory.name, "runs": [run.name for run in group.racers]}
    reports.events.write(RACE_STARTED, **about, workers=point.config["workers"], seconds=point.race.seconds)
    title += f"  {plural(len(group.racers), 'run')} with {plural(point.config['workers'], 'worker')}"
    print_line(reports.verbosity.info(), f"{title}, {point.race.seconds:g} s a heat at most", "dim")
    without: dict[str, str] = {}
    while len(group.racers) - len(without) > 1:
        run = _lay_out(group, points, without)
        task = tasks(run, point)
        # also where the baseline has a server with a rank of its own, which the race leaves out
        limits = dataclasses.replace(task.limits, time_s=None)  # race.seconds is its limit
        task = dataclasses.replace(task, module=[MODULE], workers=point.config["workers"], limits=limits)
        (job,) = executor.submit_runs([task])
        with signals.defer_interrupts():
            while not job.ended:
                signals.raise_deferred()
                executor.poll()
                _cancel_if_asked(executor, job, inbox)
                time.sleep(POLL_S)
        failed = None if job.status == run_directory.DONE else _find_culprit(run)
        if failed is None:
            break
        without[failed] = str(job.reason)
    ratios = files.read_json(run.path(run_directory.RATIOS)) or {}
    heats = ratios.get("heats", []) if job.status == run_directory.DONE else []
    reports.events.write(RACE_ENDED, **about, status=job.status, reason=job.reason, heats=heats)
    if job.status != run_directory.DONE:
        print_line(reports.verbosity.errors(), f"{title}  {job.status}: {job.reason}", "bold red")
        return job.status
    left_out = "; ".join(f"{name}: {why}" for name, why in {**without, **ratios.get("left_out", {})}.items())
    if left_out:
        print_line(reports.verbosity.info(), f"{title}  left out: {left_out}")
    figures = [figures for heat in heats for figures in heat["runs"].values()]
    if not figures:
        print_line(reports.verbosity.info(), f"{title}  nothing to compare")
        return job.status
    blocks, worst = sum(each["blocks"] for each in figures), max(each["precision"] for each in figures)
    print_line(reports.verbosity.info(), f"{title}  done: {plural(blocks, 'block')}, ratios to ±{100 * worst:.2g} %")
    return job.status


def _cancel_if_asked(executor: RunExecutor, job: Job, inbox: Inbox) -> None:
    """End a race if another shell has asked to cancel the whole sweep; other requests wait for the command's end."""
    for request in inbox.read_new():
        if isinstance(request, Request) and request.kind == CANCEL and request.runs is None:
            executor.cancel([job], f"cancelled by {request.by}")
        elif isinstance(request, Request):
            inbox.hold()


def _lay_out(group: RaceGroup, points: Mapping[Run, ResolvedPoint], without: Mapping[str, str]) -> Run:
    """Create the race's directory, which looks like that of a run with the baseline's config."""
    run, point = Run(group.directory), points[group.baseline]
    run.directory.mkdir(parents=True, exist_ok=True)
    for name in (run_directory.RESULT, run_directory.RATIOS, run_directory.RACE):
        run.path(name).unlink(missing_ok=True)
    create_runs([RunLocation(point, run, signature(point.config), is_laid_out=False)])
    plan = group.build_plan(point.race.seconds, point.race.precision, without)
    files.write_json(run.path(run_directory.RACE_PLAN), plan)
    return run


def _find_culprit(run: Run) -> str | None:
    """Return the name of the run that failed in the last attempt at a race; None if no rank names a run."""
    for number in run.attempt_numbers()[-1:]:
        for path in sorted(run.attempt(number).glob(run_directory.FAILURE.format(rank="*"))):
            name = (files.read_json(path) or {}).get("run")
            if isinstance(name, str):
                return name
    return None
