"""A sweep from its points to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import disk_errors, run_directory
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import Run
from gradsweep.sweep_lock import holder
from gradsweep.text import plural
from sweep.attempts.build_task import Tasks, weight
from sweep.console.console import Verbosity, manner
from sweep.console.messages import note_growing, print_line, show_failures
from sweep.directory import completion, restore_runs, run_identity, run_layout
from sweep.directory.description import add_to_description
from sweep.directory.run_state import include
from sweep.directory.sweep_directory import Sweep
from sweep.driver import pruner
from sweep.driver.drive import Drive
from sweep.executors.packed import fork_server
from sweep.launch import detach, submit_and_leave
from sweep.launch.calibrate import calibrate
from sweep.launch.session import Closing
from sweep.launchers.launchers import build_launcher
from sweep.planning import invalid_points, reuse
from sweep.planning.estimate import Estimator
from sweep.provenance.file_owners import refuse_strangers
from sweep.settings.sweep import settings_of
from sweep.system.job_environment import build_python_environment
from sweep.system.signals import Interrupted

if TYPE_CHECKING:
    from sweep.config.idle_options import Idle
    from sweep.planning.points import Points

REPORT = "report.html"


class SearchEnded(UsageError):
    """A run has no value, and more of its batch than the sweeper was told to bear with (max_failure_rate)."""


_executed: dict[Path, list[Run]] = {}  # by sweep: the runs that this process was asked for
_closings: dict[Path, Closing] = {}  # likewise
_typed: dict[Path, list[Mapping[str, str]]] = {}  # by the name asked for: overrides of all points so far
_left_out: dict[Path, list[invalid_points.TakenOut]] = {}  # by sweep: of all batches so far
_opened: dict[Path, Path] = {}  # by the name asked for: the directory of the sweep that this process has made


def prepare_data(configs: Sequence[Mapping[str, Any]]) -> None:
    """Have the data sets of the runs prepared, once, before any rank needs them, and held against the runs' options.

    Raises:
        UsageError: files are missing, or a run's options do not fit its data; the line says which.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as asked:  # ten thousand configs are not to be held once more
        with disk_errors.naming(tempfile.gettempdir()):
            for number, config in enumerate(configs):
                asked.write(("," if number else "[") + json.dumps(config))
            asked.write("]")
            asked.seek(0)
        done = subprocess.run(
            [sys.executable, "-m", "trainers.data", "--runs"],
            stdin=asked,
            stderr=subprocess.PIPE,
            env={**os.environ, **build_python_environment()},
            text=True,
            errors="replace",
        )
    lines = done.stderr.strip().splitlines()
    if done.returncode == 2 and lines:
        raise UsageError(lines[-1])
    if done.returncode:
        wanted = sorted({config["dataset"]["name"] for config in configs})
        raise UsageError(f"dataset={','.join(wanted)}: could not be prepared:\n{done.stderr.strip()}")
    if lines:
        print("\n".join(lines), file=sys.stderr)


@contextmanager
def forgetting(directory: Path) -> Iterator[None]:
    """Where this block ends early and nothing was started, take back what Hydra has made, as if it had not been."""
    try:
        yield
    except BaseException:
        take_back(directory)
        raise
    finally:
        fork_server.close_early()


def take_back(directory: Path) -> None:
    """Remove what Hydra has made for a sweep of which nothing was started."""
    from sweep.config import directories  # not at the top: `python -m sweep` does without Hydra

    with suppress(OSError):
        if not (directory / run_directory.SWEEP).exists():
            (directory / "multirun.yaml").unlink(missing_ok=True)  # by sweepers other than ours
            directories.remove_made()


def execute(
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    directory: Path,
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    idle: Idle | None = None,
    fresh: bool,
    whole: bool = True,
) -> list[Run | None]:
    """Run the points of a grid: check all, lay out their directories, run what is missing.

    Args:
        configs: of the points, composed; all of one sweep, so with equal sections `sweep` and `mpi`.
        overrides: key and value of each point's overrides, as typed.
        directory: of the sweep.
        resolve: checks one config and settles what it leaves open.
        idle: tells what was typed and decides nothing, which is refused (`sweep/config/idle_options.py`).
        fresh: the directory's name was made up for this sweep, so it may be changed.
        whole: these are all points of the sweep; others do not come in further calls.

    Returns:
        The run of each point, in order; equal points share one. None for a point that was taken out of the grid,
        and for all with sweep.dry_run.

    Raises:
        UsageError: a point cannot work; nothing was started.
        Interrupted: by a signal; everything that was started has been ended.
    """
    from sweep.planning.points import check  # with Hydra, which `python -m sweep` does without

    points = check(configs, overrides, resolve, idle=idle, whole=whole, begun=directory in _opened)
    settings, program = points.settings, points.mpi.program()
    found: list[Run | None] = [None] * len(configs)
    if settings.resume is not None and not (directory / run_directory.SWEEP).is_file():
        raise UsageError(
            f"sweep.resume={settings.resume}: there is no sweep in {directory} (no {run_directory.SWEEP}); "
            f"valid is `last` or the directory of a sweep"
        )
    if settings.resume is None and not fresh and any("sweep.name" in typed for typed in overrides):
        raise bad_value("sweep.name", settings.name, f"left out with hydra.sweep.dir={directory}, the name in full")
    joins = not fresh and directory not in _opened and (directory / run_directory.SWEEP).exists()
    if joins and settings.resume is None and holder(directory) is None:
        valid = f"a directory without a sweep, or with sweep.resume={directory} to go on with the one that is there"
        raise bad_value("hydra.sweep.dir", directory, valid)
    if settings.resume not in (None, "last") and os.path.realpath(settings.resume) != os.path.realpath(directory):
        raise bad_value("sweep.resume", settings.resume, f"{directory} with hydra.sweep.dir={directory}")
    if settings.dry_run:
        from sweep.planning import dry_run  # only this needs it

        if manner(settings).json:
            dry_run.tell(points, directory)
        else:
            dry_run.show(points, directory, manner(settings).errors())
        take_back(directory)
        return found
    if not points.configs:  # of a batch of a search
        _note_left_out(_opened[directory], points, len(configs))
        return found
    if (directory / run_directory.SWEEP).is_file() and directory not in _opened:
        refuse_strangers(directory, run_directory.runs_of(directory))
    if todo := _incomplete(points, directory):
        with _loading(points):
            prepare_data(todo)
    # a sweeper that hands over batch after batch fills one directory
    again = directory in _opened
    sweep = Sweep(_opened.get(directory, directory), fresh=fresh and not again)
    try:
        _opened[directory] = sweep.directory
        if not whole:
            note_growing(sweep.directory)
        so_far = _typed.setdefault(directory, [])
        so_far += points.overrides
        runs = sweep.lay_out(points.configs, points.overrides, program, again=again, among=so_far)
        wanted = dict(zip(runs, points.configs, strict=True))
        _note_left_out(sweep.directory, points, len(configs))
        if len(wanted) < len(runs):
            equal = f"{len(runs)} points are {plural(len(wanted), 'run')}: what is the same is computed once"
            print_line(manner(settings).info(), equal)
        if settings.wait or not completion.list_missing(wanted):
            take_to_end(sweep.directory, wanted)
        else:
            leave(sweep, list(wanted), points.configs[0])
    except UsageError:
        if sweep.directory not in _executed:  # it was refused: by a scheduler, say
            sweep.forget()
        raise
    except Interrupted:
        if not (sweep.directory / run_directory.SWEEP).exists():
            sweep.forget()
        elif not restore_runs.are_recorded(sweep.directory, points.configs):
            note_growing(sweep.directory)  # only its own command knows all points
        raise
    finally:
        sweep.close()
    for number, run in zip(points.numbers, runs, strict=True):
        found[number] = run
    return found


def _note_left_out(directory: Path, points: Points, of: int) -> None:
    """Say how many points are left out, and why, and write it into sweep.yaml, with those of earlier batches."""
    if not points.taken_out:
        return
    for line in invalid_points.lines(points.taken_out, of, most=10):
        print_line(manner(points.settings).info(), line)
    so_far = _left_out.setdefault(directory, [])
    so_far += points.taken_out
    add_to_description(directory, points_left_out=invalid_points.summary(so_far))


def _loading(points: Points) -> AbstractContextManager[None]:
    """Within the block, what is soon to fork the ranks of packed runs loads torch."""
    first = points.configs[0]
    if not (points.settings.pack and points.settings.wait and first["launcher"]["cluster"] == "local"):
        return nullcontext()
    return fork_server.early(points.mpi.program(), points.mpi.environment, first["threads_per_worker"])


def _incomplete(points: Points, directory: Path) -> list[dict[str, Any]]:
    """The configs of points that are not complete in a sweep that is resumed."""
    if not (directory / run_directory.SWEEP).is_file():
        return points.configs
    places = run_layout.locate_runs(directory, run_identity.name_points(points.configs, points.overrides))
    return [each.point.config for each in places if not (each.is_laid_out and completion.is_complete(each.run))]


def leave(sweep: Sweep, runs: Sequence[Run], config: Mapping[str, Any]) -> None:
    """Have runs of an open sweep computed without this process (sweep.wait=false), and say how to follow them.

    Args:
        config: of one of them.
    """
    if config["launcher"]["cluster"] == "local":
        detach.leave(sweep, runs)
    else:
        submit_and_leave.leave(sweep, runs)


def take_to_end(directory: Path, configs: Mapping[Run, Mapping[str, Any]]) -> None:
    """Compute what is missing of these runs of an open sweep, whose settings are those of its configs."""
    first = next(iter(configs.values()))
    settings, _ = settings_of(first)
    if directory not in _closings:
        _closings[directory] = Closing(directory, settings)
    closing = _closings[directory]
    if settings.prune is None:
        pruner.forget(configs)
    tasks = Tasks(directory, keep_code=settings.snapshot)
    if settings.reuse:
        reuse.take_and_tell(directory, configs, tasks.version, closing.manner.info())
    missing = completion.list_unfinished(configs)
    for run in missing:
        include(run)
    if missing:
        add_to_description(directory, calibration=calibrate())
    wanted = dict(configs)  # to which the drive adds what is asked for meanwhile
    estimator = Estimator(directory)
    executor = build_launcher(first["launcher"]).build_executor(
        directory,
        settings,
        estimate=(lambda task: estimator.seconds(wanted[task.run])) if len(missing) > 1 else None,  # an order to choose
        weigh=lambda task: weight(wanted[task.run]),
    )
    drive = Drive(directory, wanted, tasks, executor, settings, closing.events)
    began = True
    try:
        drive.run()
    except UsageError:
        began = bool(drive.jobs)  # else it was refused: nothing was started
        raise
    except Interrupted as interrupted:
        if not drive.left:
            closing.end([*_executed.get(directory, []), *drive.configs], int(interrupted.code or 1))
        raise
    finally:
        if began:
            _executed.setdefault(directory, []).extend(drive.configs)  # also those that were added meanwhile


def opened() -> list[Path]:
    """The directories of the sweeps that this process has opened."""
    return list(_opened.values())


def has_executed() -> bool:
    """Whether anything of a sweep has been computed, or looked at, by this process."""
    return bool(_executed)


def conclude() -> int:
    """Report on what this process has run and show what failed; returns the exit status, 0 or 1."""
    failed = False
    try:
        for directory, runs in _executed.items():
            failed |= not _show(directory, runs, _closings[directory])
        for directory, runs in _executed.items():
            _closings[directory].end(runs, int(failed))
    except Interrupted as interrupted:
        for directory, runs in _executed.items():
            _closings[directory].end(runs, int(interrupted.code or 1))
        raise
    return int(failed)


def _show(directory: Path, runs: Sequence[Run], closing: Closing) -> bool:
    """Report on a sweep; returns whether all of it is as it was asked for."""
    how = closing.manner
    written = write_report(directory, how)
    unfinished = [run for run in dict.fromkeys(runs) if run.status() not in run_directory.FINE]
    show_failures(unfinished, directory, how.errors())
    if (best := closing.best(runs)) is not None:
        print_line(how.info(), best)
    if how.quiet and not how.json:
        print_line(how.errors(), best or closing.summary(runs))
    return written and not unfinished


def write_report(directory: Path, how: Verbosity) -> bool:
    """Have the report of a sweep written, unless it stands; returns whether that is so now."""
    if _report_stands(directory):
        print_line(how.info(), f"nothing has changed since {os.path.relpath(directory / REPORT)}")
        return True
    command = [sys.executable, "-m", "reports", str(directory)]
    environment = {**os.environ, **build_python_environment()}
    out = subprocess.DEVNULL if how.is_terse else None
    # in a session of its own: Ctrl-C comes to us, and we end it, without its traceback
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=out, env=environment, check=False, start_new_session=True
    )
    return not done.returncode


def _report_stands(directory: Path) -> bool:
    """Whether there is a report that is newer than the state of every run."""
    try:
        written = (directory / REPORT).stat().st_mtime_ns
        return all(
            run.path(run_directory.STATE).stat().st_mtime_ns < written for run in run_directory.runs_of(directory)
        )
    except OSError:
        return False
