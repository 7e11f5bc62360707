"""Runs the races of a sweep, after the trainings or instead of them."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.disk.regular_files import is_regular, set_aside
from gradsweep.errors import UsageError
from gradsweep.options.exchange_setting import describe_baseline, find_tuned_run
from gradsweep.run_directory import Run
from gradsweep.signature import signature
from gradsweep.text import plural
from sweep.attempts.build_task import TaskBuilder
from sweep.console.events import RACE_ENDED, RACE_STARTED
from sweep.console.messages import print_line
from sweep.directory.completion import load_config
from sweep.directory.description import read_fact
from sweep.directory.requests import CANCEL, Inbox, Request
from sweep.directory.run_layout import RunLocation, create_runs
from sweep.executors.base import POLL_S, Job, RunExecutor
from sweep.launch.session import Session
from sweep.launch.sweep_events import SweepEvents
from sweep.launchers.launchers import build_executor
from sweep.planning.load_point import load_point
from sweep.planning.races import RaceGroup, explain_untuned, find_disturbed, find_missing_races
from sweep.provenance.file_owners import refuse_strangers
from sweep.settings.race import OFF, ONLY, WITHOUT, RaceSettings, parse_race
from sweep.settings.resolved_point import ResolvedPoint
from sweep.system import signals
from sweep.system.signals import Interrupted


def race_sweep(session: Session, directory: Path, points: Mapping[Run, ResolvedPoint]) -> None:
    """Race those runs of a sweep that have not raced yet, and measure disturbed throughput again (sweep.remeasure).

    Args:
        directory: the sweep's directory, whose lock this process holds.
        points: the points of the sweep's runs, as far as they have been parsed.

    Raises:
        Interrupted: by a signal; what was measured until then is kept.
    """
    race = _choose_settings(directory, points)
    if race.mode == OFF and not any(point.settings.remeasure for point in points.values()):
        return
    known = dict(points)
    for run in run_directory.runs_of(directory):
        with suppress(UsageError):  # a damaged one, of which a report tells, or another user's
            if run not in known:
                refuse_strangers(directory, [run])
                known[run] = load_point(run)
    racing = {
        run: point.config for run, point in known.items() if race.mode == ONLY or run.status() == run_directory.DONE
    }
    missing = [] if race.mode == OFF else find_missing_races(directory, racing)
    went_on = _run_races(session, directory, known, missing, race, "race")
    for _ in range(next((point.settings.remeasure for point in known.values()), 0)):
        if not went_on or not (disturbed := find_disturbed(directory, racing)):
            break
        went_on = _run_races(session, directory, known, disturbed, race, "again")


def _run_races(
    session: Session,
    directory: Path,
    points: Mapping[Run, ResolvedPoint],
    groups: Sequence[RaceGroup],
    race: RaceSettings,
    name: str,
) -> bool:
    """Run races one after another; return False if a signal or another shell has asked to end the sweep."""
    if not groups:
        return True
    first = points[groups[0].baseline]
    events = session.open_events(directory, first.settings)
    is_local = first.config["launcher"]["cluster"] == "local"
    settings = dataclasses.replace(first.settings, pack=is_local)  # a race is a job of SLURM by itself
    session.runs.extend(run for group in groups for served in group.racers.values() for run in served)
    session.is_racing = True
    status = run_directory.DONE
    try:
        executor = build_executor(first.options, directory, settings, fork_servers=session.fork_servers)
        tasks = TaskBuilder(directory, keep_code=settings.snapshot)
        try:
            inbox = Inbox(directory)
            with signals.collect_signal(signal.SIGUSR1) as asked:
                for number, group in enumerate(groups, 1):
                    title = f"[{name} {number}/{len(groups)}]"
                    racers = [points[run] for run in group.racers]
                    status = _run_race(executor, tasks, group, racers, race, title, events, inbox, asked)
                    session.failed_races += status != run_directory.DONE
                    session.is_stopped |= status == run_directory.CANCELLED or bool(asked)
                    if session.is_stopped:
                        break
        finally:
            executor.cancel_all("interrupted")
    except Interrupted as interrupted:
        events.end(session.runs, int(interrupted.code or 1))
        raise
    session.is_racing = False
    return not session.is_stopped


def _choose_settings(directory: Path, points: Mapping[Run, ResolvedPoint]) -> RaceSettings:
    """Return the race settings: those of `points`, or else those of the sweep's last command with points.

    If an earlier version of Gradsweep has not recorded them, they are read from the config of a run.
    """
    if points:
        return next(iter(points.values())).race
    recorded = read_fact(directory, "race")
    if isinstance(recorded, dict):
        with suppress(UsageError):  # damaged
            return parse_race({"race": recorded})
    for run in run_directory.runs_of(directory):
        with suppress(UsageError):
            return parse_race(load_config(run))
    return WITHOUT


def _run_race(
    executor: RunExecutor,
    tasks: TaskBuilder,
    group: RaceGroup,
    racers: Sequence[ResolvedPoint],
    race: RaceSettings,
    title: str,
    reports: SweepEvents,
    inbox: Inbox,
    asked: Sequence[int],
) -> str:
    """Run a race, and repeat it without the runs that make it fail; return its final status.

    Args:
        asked: signals that have asked to end the race; it is read while the race goes on.
        racers: the points of the group's runs; the first is the baseline's.
    """
    point = racers[0]
    about = {"race": group.directory.name, "runs": [run.name for run in group.racers]}
    reports.events.write(RACE_STARTED, **about, workers=point.config["workers"], seconds=race.seconds)
    title += f"  {plural(len(group.racers), 'run')} with {plural(point.config['workers'], 'worker')}"
    print_line(reports.verbosity.info(), f"{title}, {race.seconds:g} s a heat at most", "dim")
    without: dict[str, str] = {}
    untuned = None
    while len(group.racers) - len(without) >= min(2, len(group.racers)):
        run = lay_out_race(group, point, race, without, untuned)
        task = tasks(run, point, [racer.config for racer in racers[1:]])
        limits = dataclasses.replace(task.limits, time_s=None)  # race.seconds is its limit
        # one rank a worker: a baseline with a server that has a rank of its own is left out of the race
        workers = point.config["workers"]
        task = dataclasses.replace(task, module=[run_directory.RACE_MODULE], workers=workers, limits=limits)
        (job,) = executor.submit_runs([task])
        is_ending = False
        with signals.defer_interrupts():
            while not job.ended:
                signals.raise_deferred()
                executor.poll()
                if asked and not is_ending:
                    is_ending = True
                    executor.ask_to_end([job], "asked to stop by SIGUSR1")
                _cancel_if_asked(executor, job, inbox)
                time.sleep(POLL_S)
        failed, in_trial = (None, False) if job.status == run_directory.DONE else _find_culprit(run)
        if failed is None:
            break
        baseline = next(racer.name for racer in group.racers if racer.name not in without)
        if failed == baseline and in_trial and untuned is None:
            untuned = f"its trial failed: {job.reason}"
        else:
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
    print_line(reports.verbosity.info(), f"{title}  done: {describe_precision(figures)}")
    described, name = describe_baseline(ratios), heats[0]["baseline"]
    if described and name == find_tuned_run(ratios):  # it has not left the race
        print_line(reports.verbosity.info(), f"{title}  baseline {name}: {described}", "dim")
    return job.status


def describe_precision(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return a phrase with the number of blocks of a race, and the precision of its least precise ratio.

    If a run was measured alone, without others to compare, it has a throughput instead of a ratio.
    """
    precisions = [each["precision"] for each in figures]  # null: of a ratio without an interval
    worst = "without an interval" if None in precisions else f"to ±{100 * max(precisions):.2g} %"
    if None not in precisions and max(precisions) > 1:
        worst = "too noisy to compare"
    what = "ratios" if any(each["ratio"] is not None for each in figures) else "throughput"
    return f"{plural(sum(each['blocks'] for each in figures), 'block')}, {what} {worst}"


def _cancel_if_asked(executor: RunExecutor, job: Job, inbox: Inbox) -> None:
    """End a race if another shell has asked to cancel the whole sweep; leave other requests for later."""
    for request in inbox.read_new():
        if isinstance(request, Request) and request.kind == CANCEL and request.runs is None:
            executor.cancel([job], f"cancelled by {request.by}")
        elif isinstance(request, Request):
            inbox.hold()


def lay_out_race(
    group: RaceGroup, point: ResolvedPoint, race: RaceSettings, without: Mapping[str, str], untuned: str | None = None
) -> Run:
    """Create the race's directory, which looks like that of a run with the baseline's config; return it.

    Only result.json of an earlier race is removed; its measurements stay until the ranks replace them. Anything in the
    way that is not a directory or a regular file is renamed.

    Args:
        point: the point of the baseline's run.
        without: the names of runs that are left out of the race, each with the reason.
        untuned: why the exchange of the baseline is not tuned, if nothing else says so.
    """
    run = Run(group.directory)
    if not run.directory.parent.is_dir():
        set_aside(run.directory.parent)
    if run.directory.is_symlink() or not run.directory.is_dir():
        set_aside(run.directory)
    run.directory.mkdir(parents=True, exist_ok=True)
    for name in (run_directory.RESULT, run_directory.RACE_PLAN, run_directory.RATIOS, run_directory.RACE):
        if not is_regular(run.path(name)):
            set_aside(run.path(name))
    run.path(run_directory.RESULT).unlink(missing_ok=True)
    create_runs([RunLocation(point, run, signature(point.config), is_laid_out=False)])
    overrides = point.overrides or group.baseline.state().get("overrides") or ()
    why = explain_untuned(race, point.config, [word for word in overrides if isinstance(word, str)])
    plan = group.build_plan(race.seconds, race.precision, without, why or untuned)
    files.write_json(run.path(run_directory.RACE_PLAN), plan)
    return run


def _find_culprit(run: Run) -> tuple[str | None, bool]:
    """Return the name of the run that failed in the last attempt at a race, and whether it was in its trial.

    The name is None if no rank names a run.
    """
    for number in run.attempt_numbers()[-1:]:
        for path in sorted(run.attempt(number).glob(run_directory.FAILURE.format(rank="*"))):
            failure = files.read_json(path) or {}
            if isinstance(name := failure.get("run"), str):
                return name, failure.get("in_trial") is True
    return None, False
