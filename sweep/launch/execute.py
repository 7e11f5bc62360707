"""All steps of a sweep, from the points of its grid to its end."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import Run
from gradsweep.sweeps.sweep_lock import read_lock_owner
from gradsweep.text import plural
from sweep.console.messages import print_line
from sweep.directory import restore_runs
from sweep.directory.completion import is_complete, list_missing
from sweep.directory.description import add_to_description
from sweep.directory.run_layout import RunLocation, locate_runs
from sweep.directory.sweep_directory import Sweep
from sweep.emulation import find_emulation
from sweep.executors.packed.fork_server import ForkServers
from sweep.launch.prepare_data import prepare_data
from sweep.launch.session import Session
from sweep.launch.take_to_end import run_or_leave
from sweep.planning import invalid_points
from sweep.provenance.file_owners import refuse_strangers
from sweep.settings.race import ONLY
from sweep.system.signals import Interrupted

if TYPE_CHECKING:
    from sweep.config.idle_options import Idle
    from sweep.planning.points import Points
    from sweep.settings.sweep import SweepSettings


def execute(
    session: Session,
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    directory: Path,
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    idle: Idle | None = None,
    find_lost_errors: Callable[[Iterable[Mapping[str, Any]]], list[str]] = lambda configs: [],
    fresh: bool,
    whole: bool = True,
) -> list[Run | None]:
    """Run the points of a grid: check all, create their directories, compute the missing runs.

    Args:
        session: the state of the command; all batches of a search have the same session.
        configs: the composed configs of the points, with equal sections `sweep` and, except for the transport, `mpi`.
        overrides: key and value of each point's overrides, as typed.
        resolve: checks a config and replaces open values, such as null, by those that they mean.
        idle: finds typed options without effect, which are refused (`sweep/config/idle_options.py`).
        find_lost_errors: returns the names of compressors that lose their errors (`trainers/rules/lost_errors.py`).
        fresh: the directory's name was generated for this sweep, so another name will do as well.
        whole: these are all points of the sweep; else they are a batch of a search, and further calls may follow.

    Returns:
        The run of each point, in order; points with equal signatures share a run. None for a point that was left out of
        the grid, and for all points with sweep.dry_run.

    Raises:
        UsageError: a point cannot work; nothing was started.
        Interrupted: by a signal; everything that was started has been ended.
    """
    from sweep.planning.points import check_points  # with Hydra, which `python -m sweep` does without

    again = session.directory is not None  # a sweeper hands over batch after batch
    silent = session.flags.is_terse
    points = check_points(
        configs, overrides, resolve, idle=idle, whole=whole, begun=again, earlier=session.typed, silent=silent
    )
    settings, program = points.settings, points.mpi.resolve_command()
    is_trained = bool(points.points) and points.points[0].race.mode != ONLY
    lost_errors = find_lost_errors(point.config for point in points.points) if is_trained else []
    runs_of_points: list[Run | None] = [None] * len(configs)
    if not again:
        _check_directory(points, overrides, directory, fresh)
    if settings.dry_run:
        from sweep.planning import dry_run  # only this needs it

        verbosity = session.choose_verbosity(settings)
        if verbosity.json:
            dry_run.print_json(points, directory)
        else:
            dry_run.print_table(points, directory, verbosity.errors(), silent=silent)
            _print_lost_errors(session, settings, lost_errors)
        return runs_of_points
    if not points.points:  # of a batch of a search
        _note_left_out(session, points, len(configs))
        return runs_of_points
    if not again and (directory / run_directory.SWEEP).is_file():
        refuse_strangers(directory, run_directory.runs_of(directory))
    sweep = Sweep(session.directory or directory, fresh=fresh and not again)
    locations: list[RunLocation] = []
    try:
        locations = locate_runs(sweep.directory, points.points, silent=silent)
        todo = [each.point.config for each in locations if not (each.is_laid_out and is_complete(each.run))]
        if todo:
            with _load_torch_early(session, points):
                prepare_data(todo)
        session.directory = sweep.directory
        session.is_growing |= not whole
        session.typed += points.overrides
        race = dataclasses.asdict(points.points[0].race)  # later commands without points race likewise
        runs = sweep.lay_out(locations, points.swept, program, race=race, again=again, silent=silent)
        wanted = dict(zip(runs, points.points, strict=True))
        _note_left_out(session, points, len(configs))
        _print_lost_errors(session, settings, lost_errors)
        if len(wanted) < len(runs):
            equal = f"{len(runs)} points are {plural(len(wanted), 'run')}: what is the same is computed once"
            print_line(session.choose_verbosity(settings).info(), equal)
        run_or_leave(session, sweep, wanted, wait=settings.wait or not list_missing(wanted))
    except UsageError:
        if not session.runs:  # they were refused, by a scheduler for example
            sweep.forget()
        raise
    except Interrupted:
        if not (sweep.directory / run_directory.SWEEP).exists():
            sweep.forget()
        elif not restore_runs.are_recorded(sweep.directory, locations):
            session.is_growing = True  # only its own command knows all points
        raise
    finally:
        sweep.close()
    for number, run in zip(points.numbers, runs, strict=True):
        runs_of_points[number] = run
    return runs_of_points


def _check_directory(points: Points, overrides: Sequence[Mapping[str, str]], directory: Path, fresh: bool) -> None:
    """Check that a new command may compute its points in `directory`.

    Raises:
        UsageError: sweep.resume or sweep.name does not fit the directory, or it has another sweep.
    """
    settings = points.settings
    is_sweep = (directory / run_directory.SWEEP).exists()
    if settings.resume is not None and not (directory / run_directory.SWEEP).is_file():
        raise UsageError(
            f"sweep.resume={settings.resume}: there is no sweep in {directory} (no {run_directory.SWEEP}); "
            f"valid is `last` or the directory of a sweep"
        )
    if settings.resume is None and not fresh and any("sweep.name" in typed for typed in overrides):
        raise bad_value("sweep.name", settings.name, f"left out with hydra.sweep.dir={directory}, the name in full")
    if not fresh and is_sweep and settings.resume is None and read_lock_owner(directory) is None:
        valid = f"a directory without a sweep, or with sweep.resume={directory} to go on with the one that is there"
        raise bad_value("hydra.sweep.dir", directory, valid)
    if settings.resume not in (None, "last") and os.path.realpath(settings.resume) != os.path.realpath(directory):
        raise bad_value("sweep.resume", settings.resume, f"{directory} with hydra.sweep.dir={directory}")


def _note_left_out(session: Session, points: Points, total: int) -> None:
    """Print how many points are left out and why; record that in sweep.yaml, with those of earlier batches."""
    if not points.taken_out:
        return
    assert session.directory is not None
    for line in invalid_points.describe_left_out(points.taken_out, total, most=10):
        print_line(session.choose_verbosity(points.settings).info(), line)
    session.left_out += points.taken_out
    add_to_description(session.directory, points_left_out=invalid_points.summarise(session.left_out))


def _print_lost_errors(session: Session, settings: SweepSettings, names: Sequence[str]) -> None:
    """Print which compressors lose their errors, those named for earlier batches of a search left out."""
    new = [name for name in names if name not in session.lost_errors]
    session.lost_errors += new
    if new:
        line = (
            f"{', '.join(new)} with memory=none: biased, and the errors are lost, which costs accuracy; "
            "memory=residual adds them to what is sent next (error feedback)"
        )
        print_line(session.choose_verbosity(settings).info(), line)


def _load_torch_early(session: Session, points: Points) -> AbstractContextManager[None]:
    """Return a context in which a fork server loads torch, so that it can then fork the ranks of packed runs.

    It forks no ranks of runs on emulated networks.
    """
    first = next((point for point in points.points if find_emulation(point.config) is None), None)
    packs = points.settings.pack and points.settings.wait
    if first is None or not packs or first.config["launcher"]["cluster"] != "local":
        return nullcontext()
    session.fork_servers = session.fork_servers or ForkServers()
    command, threads = first.mpi.resolve_command(), first.config["threads_per_worker"]
    return session.fork_servers.start_early(command, first.mpi.variables, threads)
