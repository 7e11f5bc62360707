"""From configs to run directories: signatures, names, and what a resume still has to do."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gradsweep import run_directory, yaml_files
from gradsweep.files import is_regular, set_aside
from gradsweep.run_directory import SIGNATURE_DIGITS, Run, UsageError, write_json, write_text
from gradsweep.signature import signature
from gradsweep.text import one_line
from sweep.console.step_counter import counted
from sweep.directory.run_state import reconcile_abandoned, write_state
from sweep.provenance.secrets import hide_in_word

SETTINGS = ("sweep", "mpi", "launcher")  # sections of a config that say how it is run


@dataclasses.dataclass(frozen=True)
class Point:
    """One point of a grid: its resolved config, its swept keys with their values as typed, all that was typed.

    Where what was typed is a secret by its name, `overrides` has not got it.
    """

    config: dict[str, Any]
    swept: dict[str, str]
    overrides: tuple[str, ...] = ()


def readable_name(swept: Mapping[str, str], longest: int = 120) -> str:
    """The swept keys and values as a part of a directory's name: safe characters only, not too long."""
    text = ",".join(f"{key}={value}" for key, value in swept.items()) or "run"
    return re.sub(r"[^A-Za-z0-9._=,+-]", "_", text)[:longest]


def swept_keys(points: Sequence[Mapping[str, str]]) -> list[str]:
    """The override keys whose values differ between the points of a grid, in their order."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    return [key for key in keys if len({point.get(key) for point in points}) > 1]


def name_points(
    configs: Sequence[dict[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    among: Sequence[Mapping[str, str]] | None = None,
) -> list[Point]:
    """The points of a grid, named by what differs between them; a single run by what was typed, but for places.

    Args:
        among: overrides of these points and of those of the same sweep that came before them; None: there were none.
    """
    shown = swept_keys(among or overrides) or [
        key for typed in overrides[:1] for key in typed if key.partition(".")[0] not in run_directory.PLACES
    ]
    points = []
    for config, typed in zip(configs, overrides, strict=True):
        named = drop_undecided(config, typed)
        words = tuple(hide_in_word(f"{key}={value}") for key, value in typed.items())
        points.append(Point(config, {key: named[key] for key in shown if key in named}, words))
    return points


def drop_undecided(config: Mapping[str, Any], typed: Mapping[str, str]) -> dict[str, str]:
    """What was typed for a run, as far as it decides anything of it.

    A part that has become none in the resolved `config`, as has the topology of a run that is not decentralised, is
    that, and has no options.
    """
    found = {}
    for key, value in typed.items():
        group, _, option = key.partition(".")
        part = config.get(group)
        if not isinstance(part, Mapping) or part.get("name") != "none":
            found[key] = value
        elif not option:
            found[key] = "none"
    return found


def full_signature(run: Run) -> str | None:
    """Return the whole signature of an existing run; None where nothing tells, or its state cannot be written."""
    known = run.state().get("signature")
    if isinstance(known, str):
        return known
    return None if _is_blocked(run) else _signature_of_config(run)


def _is_blocked(run: Run) -> bool:
    """Whether something that is no regular file, such as a directory, stands where state.json is to be written."""
    return os.path.lexists(run.path(run_directory.STATE)) and not is_regular(run.path(run_directory.STATE))


def _signature_of_config(run: Run) -> str | None:
    """Return the signature of config.yaml as it is; None where it cannot be read."""
    try:
        return signature(yaml_files.read_sections(run.path(run_directory.CONFIG)))
    except (OSError, ValueError, TypeError):  # TypeError: a value that no JSON has, such as a date
        return None


def load_config(run: Run) -> dict[str, Any]:
    """The config of a run as it was laid out.

    Raises:
        UsageError: it cannot be read, or is no longer the one that the run's signature stands for.
    """
    path = run.path(run_directory.CONFIG)
    again = "valid is what the sweep has written; its command with sweep.resume= writes it again"
    if _is_blocked(run):
        raise UsageError(f"{run.path(run_directory.STATE)}: not a regular file; valid is to remove it")
    try:
        config = yaml_files.read_mapping(path)
        now = signature(config)
    except (OSError, ValueError, TypeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise UsageError(f"{path}: cannot be read ({one_line(why)}); {again}") from error
    if not all(isinstance(config.get(place), dict) for place in SETTINGS):
        raise UsageError(f"{path}: not the config of a run; {again}")
    full = run.state().get("signature")
    if not now.startswith(full if isinstance(full, str) else run.signature):
        raise UsageError(f"{path}: changed since, its signature is now {now[:SIGNATURE_DIGITS]}; {again}")
    return config


def lay_out(sweep: Path, points: Iterable[Point], folder: str = run_directory.RUNS) -> list[Run]:
    """Give every point its run directory with config.yaml and state.json, and return the runs in order.

    Directories of earlier runs with the same signature are kept as they are; equal points share one.

    Args:
        folder: of the sweep, that they are in.
    """
    return create_runs(locate_runs(sweep, points, folder))


def create_runs(places: Sequence[RunLocation]) -> list[Run]:
    """Make the run directories that are not there yet; return the runs in order."""
    different = {each.run: each for each in places}
    for run, entry in counted("runs laid out", different.items()):
        if not entry.is_laid_out:
            _create(run, entry)
        elif not is_complete(run):  # its places may have changed, or the file be damaged
            _write_config(run, entry.point.config)
            state = run.state()  # a job may be writing it: only where something is missing
            if (state.get("signature"), state.get("workers")) != (entry.signature, entry.point.config["workers"]):
                write_state(run, signature=entry.signature, workers=entry.point.config["workers"])
    return [each.run for each in places]


@dataclasses.dataclass(frozen=True)
class RunLocation:
    """Where a point is computed."""

    point: Point
    run: Run
    signature: str
    is_laid_out: bool
    """Whether the run is there already."""


def locate_runs(sweep: Path, points: Iterable[Point], folder: str = run_directory.RUNS) -> list[RunLocation]:
    """The run directory of every point: that of the run with its signature, or a new name. Writes nothing."""
    existing = {
        known: run for run in run_directory.runs_of(sweep, folder) if (known := full_signature(run)) is not None
    }
    new: dict[str, Run] = {}
    taken = {run.directory for run in existing.values()}
    places = []
    for point in counted("points looked up", list(points)):
        full = signature(point.config)
        run = existing.get(full) or new.get(full)
        if run is None:
            run = new[full] = _new_run(sweep / folder, point, full, taken)
        places.append(RunLocation(point, run, full, full in existing))
    return places


def _new_run(folder: Path, point: Point, full: str, taken: set[Path]) -> Run:
    name = readable_name(point.swept)
    for digits in range(SIGNATURE_DIGITS, len(full) + 1):
        directory = folder / f"{name}-{full[:digits]}"
        if directory not in taken and not (directory / run_directory.CONFIG).exists():
            break
    taken.add(directory)
    return Run(directory)


def _create(run: Run, entry: RunLocation) -> None:
    _set_directory_aside(run)
    run.directory.mkdir(parents=True, exist_ok=True)
    for path in (run.path(run_directory.STATE), run.path(run_directory.CONFIG)):
        if not is_regular(path):  # a directory, say, could not be replaced
            set_aside(path)
    state = {
        "format": run_directory.FORMAT,
        "status": run_directory.PENDING,
        "reason": None,
        "signature": entry.signature,
        "workers": entry.point.config["workers"],
        "overrides": list(entry.point.overrides),
        "oversubscribed": None,
        "shared_cores": None,
        "updated": run_directory.now(),
        "attempts": [],
    }
    if run.state().get("signature") != entry.signature:  # else only its config was missing
        write_json(run.path(run_directory.STATE), state)
    _write_config(run, entry.point.config)  # last: a directory with a config is a run


def _write_config(run: Run, config: Mapping[str, Any]) -> None:
    text = yaml.dump(dict(config), Dumper=yaml_files.Dumper, sort_keys=False, allow_unicode=True)
    write_text(run.path(run_directory.CONFIG), text)


def _set_directory_aside(run: Run) -> None:
    """Rename what is left of a directory that was removed while somebody wrote there."""
    if run.directory.is_dir():
        run_directory.remove_partial(run.directory)
    if run.directory.is_dir() and full_signature(run) is None and any(run.directory.iterdir()):
        number = 1
        while (aside := run.directory.with_name(f"{run.name}.removed-{number}")).exists():
            number += 1
        run.directory.rename(aside)


def explain_unfit(run: Run) -> str | None:
    """Why a run that is laid out cannot be computed any more: its files have been removed or changed; else None."""
    if not run.directory.is_dir():
        return "the directory of the run has been removed; a resume lays it out again"
    known = run.state().get("signature")
    if not isinstance(known, str):  # state.json is gone, too, or damaged
        known = run.signature
    if not re.fullmatch(rf"[0-9a-f]{{{SIGNATURE_DIGITS},}}", known):
        return None
    if (_signature_of_config(run) or "").startswith(known):
        return None
    return f"{run_directory.CONFIG} has been removed or changed; a resume writes it again"


def is_complete(run: Run) -> bool:
    """Whether a run was computed to an end and its result is there, or it was ended as it was no good."""
    status = run.status()
    return status in run_directory.COMPLETE and (status not in run_directory.RESULTS or run.result() is not None)


def list_missing(runs: Iterable[Run], settle: Callable[[Run], None] = reconcile_abandoned) -> list[Run]:
    """The runs, each once, that have not been computed to an end.

    To be called by the holder of the sweep's lock: a run that says it is running has lost its launcher.

    Args:
        settle: brings the state of a run in line with what has become of it.
    """
    wanted: dict[Path, Run] = {}
    for run in runs:
        if is_complete(run):
            continue
        settle(run)
        if not is_complete(run):
            wanted.setdefault(run.directory, run)
    return list(wanted.values())


def list_unfinished(runs: Iterable[Run]) -> list[Run]:
    """Return the runs, each once, that are not complete, as their files say it; nothing is reconciled."""
    return [run for run in dict.fromkeys(runs) if not is_complete(run)]
