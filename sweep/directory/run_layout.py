"""Find or create the run directory of each point by its signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gradsweep import files, run_directory, yaml_files
from gradsweep.disk.regular_files import is_regular, set_aside
from gradsweep.files import write_json, write_text
from gradsweep.run_directory import SIGNATURE_DIGITS, Run
from gradsweep.signature import signature
from sweep.console.step_counter import count_through
from sweep.directory.completion import is_complete
from sweep.directory.run_identity import Point, build_name, read_signature
from sweep.directory.run_state import write_state


def lay_out(sweep: Path, points: Sequence[Point], folder: str = run_directory.RUNS) -> list[Run]:
    """Create a run directory in `folder` for every point, with config.yaml and state.json; return the runs in order.

    A directory of an earlier run with the same signature is kept unchanged; points with equal signatures share one.
    """
    return create_runs(locate_runs(sweep, points, folder))


def create_runs(places: Sequence[RunLocation], *, silent: bool = False) -> list[Run]:
    """Create the run directories that do not exist yet; return the runs in order."""
    different = {each.run: each for each in places}
    for run, entry in count_through("runs laid out", different.items(), silent=silent):
        if not entry.is_laid_out:
            _create_run(run, entry)
        elif not is_complete(run):  # its places may have changed, or the file be damaged
            _write_config(run, entry.point.config)
            state = run.state()  # a job may be writing it: only where something is missing
            if (state.get("signature"), state.get("workers")) != (entry.signature, entry.point.config["workers"]):
                write_state(run, signature=entry.signature, workers=entry.point.config["workers"])
    return [each.run for each in places]


@dataclasses.dataclass(frozen=True)
class RunLocation:
    """A point with its run directory, which may not exist yet."""

    point: Point
    run: Run
    signature: str
    is_laid_out: bool
    """Whether the run is there already."""


def locate_runs(
    sweep: Path, points: Sequence[Point], folder: str = run_directory.RUNS, *, silent: bool = False
) -> list[RunLocation]:
    """Return every point's run directory: the existing one with its signature, or a new name; write nothing."""
    existing = {
        known: run for run in run_directory.runs_of(sweep, folder) if (known := read_signature(run)) is not None
    }
    new: dict[str, Run] = {}
    taken = {run.directory for run in existing.values()}
    places = []
    for point in count_through("points looked up", points, silent=silent):
        full = signature(point.config)
        run = existing.get(full) or new.get(full)
        if run is None:
            run = new[full] = _name_new_run(sweep / folder, point, full, taken)
        places.append(RunLocation(point, run, full, full in existing))
    return places


def _name_new_run(folder: Path, point: Point, full: str, taken: set[Path]) -> Run:
    name = build_name(point.swept)
    for digits in range(SIGNATURE_DIGITS, len(full) + 1):
        directory = folder / f"{name}-{full[:digits]}"
        if directory not in taken and not (directory / run_directory.CONFIG).exists():
            break
    taken.add(directory)
    return Run(directory)


def _create_run(run: Run, entry: RunLocation) -> None:
    _set_directory_aside(run)
    run.directory.mkdir(parents=True, exist_ok=True)
    for path in (run.path(run_directory.STATE), run.path(run_directory.CONFIG)):
        if not is_regular(path):  # a directory, for example, could not be replaced
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
        "updated": files.now(),
        "attempts": [],
    }
    if run.state().get("signature") != entry.signature:  # else only its config was missing
        write_json(run.path(run_directory.STATE), state)
    _write_config(run, entry.point.config)  # last: a directory with a config is a run


def _write_config(run: Run, config: Mapping[str, Any]) -> None:
    text = yaml.dump(dict(config), Dumper=yaml_files.Dumper, sort_keys=False, allow_unicode=True)
    write_text(run.path(run_directory.CONFIG), text)


def _set_directory_aside(run: Run) -> None:
    """Rename a directory that somebody removed while a process wrote to it, so that only some files are left."""
    if run.directory.is_dir():
        files.remove_partial(run.directory)
    if run.directory.is_dir() and read_signature(run) is None and any(run.directory.iterdir()):
        number = 1
        while (aside := run.directory.with_name(f"{run.name}.removed-{number}")).exists():
            number += 1
        run.directory.rename(aside)
