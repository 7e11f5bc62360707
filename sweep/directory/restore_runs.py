"""Lists the recorded runs of a sweep whose directories are missing, and creates these directories from the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gradsweep import run_directory
from gradsweep.run_directory import Run
from gradsweep.signature import signature
from gradsweep.sweeps import planned_runs
from sweep.directory import run_identity, run_layout
from sweep.directory.run_identity import Point
from sweep.directory.run_layout import RunLocation


def list_records(places: Iterable[RunLocation]) -> list[planned_runs.Recorded]:
    """Return the records of runs (gradsweep/sweeps/planned_runs.py), which are written before the runs' directories."""
    return [
        planned_runs.entry(each.run.name, each.signature, each.point.overrides, each.point.config) for each in places
    ]


def are_recorded(sweep: Path, locations: Iterable[RunLocation]) -> bool:
    """Tell whether all these runs have records, from which a resume can create their directories."""
    recorded = planned_runs.read(sweep)
    return all(each.signature in recorded for each in locations)


def lay_out_missing(sweep: Path, is_wanted: Callable[[str], bool]) -> list[Run]:
    """Create the missing directories of recorded runs, if `is_wanted` accepts their names, and return these runs.

    The caller must hold the sweep's lock.
    """
    locations = []
    for record in list_missing(sweep):
        run, config = Run(sweep / run_directory.RUNS / record.name), record.config
        is_sound = signature(config) == record.signature and isinstance(config.get("workers"), int)
        if is_sound and is_wanted(record.name):
            locations.append(RunLocation(Point(config, {}, record.overrides), run, record.signature, is_laid_out=False))
    return run_layout.create_runs(locations)


def list_missing(sweep: Path) -> list[planned_runs.Recorded]:
    """Return the recorded runs of a sweep without a directory; a renamed directory counts, by its signature."""
    there = run_directory.runs_of(sweep)
    absent = planned_runs.missing(sweep, {run.name for run in there})
    if absent:  # seldom: then it is worth reading all states
        others = {run_identity.read_signature(run) for run in there}
        absent = [each for each in absent if each.signature not in others]
    return absent
