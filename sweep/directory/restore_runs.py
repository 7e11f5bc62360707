"""Runs that are recorded of a sweep and not there: known, and laid out from the record (record.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gradsweep import planned_runs, run_directory
from gradsweep.run_directory import Run
from sweep.directory import run_identity, run_layout
from sweep.directory.run_identity import Point
from sweep.directory.run_layout import RunLocation


def list_records(places: Iterable[RunLocation]) -> list[planned_runs.Recorded]:
    """What is recorded of runs before their directories are made."""
    return [
        planned_runs.entry(each.run.name, each.signature, each.point.overrides, each.point.config) for each in places
    ]


def are_recorded(sweep: Path, configs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all runs of these configs are recorded, so that a resume lays them out."""
    known = planned_runs.read(sweep)
    return all(run_layout.signature(config) in known for config in configs)


def lay_out_missing(sweep: Path, is_wanted: Callable[[str], bool]) -> list[Run]:
    """Lay recorded runs out again whose directories are not there; returns them.

    To be called by the holder of the sweep's lock.

    Args:
        is_wanted: whether to lay out the run of a name.
    """
    places = []
    for each in list_missing(sweep):
        run, config = Run(sweep / run_directory.RUNS / each.name), each.config
        fits = run_layout.signature(config) == each.signature and isinstance(
            config.get("workers"), int
        )  # else it is damaged
        if fits and is_wanted(each.name):
            places.append(RunLocation(Point(config, {}, each.overrides), run, each.signature, is_laid_out=False))
    return run_layout.create_runs(places)


def list_missing(sweep: Path) -> list[planned_runs.Recorded]:
    """The recorded runs of a sweep whose directories are not there, also by no other name."""
    there = run_directory.runs_of(sweep)
    absent = planned_runs.missing(sweep, {run.name for run in there})
    if absent:  # seldom: then it is worth reading all states
        others = {run_identity.full_signature(run) for run in there}
        absent = [each for each in absent if each.signature not in others]
    return absent
