"""Read the races of a sweep: the throughput of runs that took their steps in turns (docs/guide/races.md)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gradsweep import csv_columns, run_directory
from gradsweep import timed_steps as timed
from gradsweep.disk import regular_files
from gradsweep.disturbance import find_heat_yardsticks
from gradsweep.options.exchange_setting import describe_baseline, find_tuned_run
from reports.reading.json_values import as_list, as_mapping, as_number
from reports.reading.machines import RATIO_YARDSTICK, YARDSTICK
from reports.reading.networks import collect_columns, collect_transport, collect_tuned
from reports.reading.run_files import DirectoryFiles, LeftOut
from reports.reading.text import clean

_OF_CORES = ("oversubscribed", "shared_cores")


class Pair(NamedTuple):
    """The speed of the run `second` relative to the run `first`, with its 95 % interval."""

    race: str
    first: str
    second: str
    ratio: float
    low: float
    high: float
    has_baseline: bool


class RaceNotes(NamedTuple):
    """The records of sweeps' races, besides the figures of single runs.

    Attributes:
        pairs: all pairs of runs that were compared.
        left_out: the runs that did not race to the end, by name, with the reason.
        unfinished: names of the races that were ended early, or have not ended yet.
    """

    pairs: list[Pair]
    left_out: dict[str, str]
    unfinished: list[str]


def read_notes(sweeps: Iterable[Path]) -> RaceNotes:
    """Return the records of these sweeps' races on pairs of runs, and on runs that were left out."""
    notes = RaceNotes([], {}, [])
    for sweep in sweeps:
        for race in _read_files(sweep, lambda entry: None):
            if not race.finished:
                notes.unfinished.append(race.name)
            for name, why in race.left_out.items():
                notes.left_out[clean(str(name))] = clean(str(why))
            for heat in race.heats:
                for pair in map(as_mapping, as_list(heat.get("pairs"))):
                    runs = [clean(str(run)) for run in as_list(pair.get("runs"))]
                    if len(runs) == 2:
                        ratio, low, high = (as_number(pair.get(key)) for key in ("ratio", "low", "high"))
                        has_baseline = clean(str(heat.get("baseline"))) in runs
                        notes.pairs.append(Pair(race.name, runs[0], runs[1], ratio, low, high, has_baseline))
    return notes


class RaceFigures(NamedTuple):
    """The measurements of a sweep's races.

    Attributes:
        by_run: by name of a run, its figures as columns of `Report.runs`.
        yardsticks: of all heats.
    """

    by_run: dict[str, dict[str, Any]]
    yardsticks: list[Any]


def read_races(sweep: Path, leave_out: Callable[[LeftOut], None]) -> RaceFigures:
    """Return the measurements of a sweep's races.

    A race measures one run for all runs that cost the same; `raced_by` names it. A race of several runs takes
    precedence over the race of a run alone, which has no ratio.
    """
    found = RaceFigures({}, [])
    for race in sorted(_read_files(sweep, leave_out), key=lambda race: len(race.racers) > 1):
        found.by_run.update(_read_figures(race))
        found.yardsticks.extend(heat.get("yardstick") for heat in race.heats)
    return found


class _Race(NamedTuple):
    name: str
    racers: Mapping[str, Any]
    """By the name of a run that races, the names of all runs that it stands for."""
    heats: list[Mapping[str, Any]]
    left_out: Mapping[str, Any]
    transport: Any
    samples: Mapping[str, float]
    """By name of a run, the samples of all workers in a step."""
    finished: bool
    tuned: Mapping[str, Any]
    """By name of a run, the setting of its exchange that a trial has found."""
    tuned_run: str | None
    """The baseline that the race began with."""
    baseline_setting: str | None
    """The exchange setting of the tuned run in words, and whether a trial found it."""
    place: Mapping[str, Any]
    """The columns of `Report.runs` on the race's cores and network."""


def _read_files(sweep: Path, leave_out: Callable[[LeftOut], None]) -> Iterator[_Race]:
    """Yield the content of ratios.json for each race of a sweep."""
    directory = sweep / run_directory.RACES
    try:
        names = sorted(regular_files.real_directories(directory))
    except OSError:
        return
    for name in names:
        files = DirectoryFiles(directory / name)
        ratios = files.read_json(run_directory.RATIOS) or {}
        # plan.json may be that of a race which has measured nothing yet; the first versions wrote no racers elsewhere
        plan = ratios if "racers" in ratios else files.read_json(run_directory.RACE_PLAN)
        for entry in files.left_out:
            leave_out(entry)
        if plan and ratios:
            left_out = {**as_mapping(plan.get("without")), **as_mapping(ratios.get("left_out"))}
            heats = [as_mapping(heat) for heat in as_list(ratios.get("heats"))]
            finished = ratios.get("finished") is True
            racers, transport = as_mapping(plan.get("racers")), ratios.get("transport")
            tuned = {**as_mapping(ratios.get("also_tuned"))}
            tuned_run = find_tuned_run(ratios)
            if tuned_run is not None and "tuned" in ratios:
                tuned[tuned_run] = ratios["tuned"]
            allowed = describe_baseline(ratios)
            allowed = None if allowed is None else clean(allowed)
            state = files.read_json(run_directory.STATE) or {}
            place = {flag: state.get(flag) is True for flag in _OF_CORES}
            place |= collect_columns(ratios.get("network"))
            about = transport, _read_samples(ratios), finished, tuned, tuned_run, allowed, place
            yield _Race(clean(name), racers, heats, left_out, *about)


def _read_samples(ratios: Mapping[str, Any]) -> dict[str, float]:
    """Return the samples of all workers in a step of each run; NaN if unknown."""
    workers = as_number(ratios.get("workers"))
    traffic = as_mapping(ratios.get("traffic"))
    return {str(name): workers * as_number(as_mapping(sent).get("samples")) for name, sent in traffic.items()}


def _read_figures(race: _Race) -> dict[str, dict[str, Any]]:
    """Return the figures of one race by run; if a baseline was in several heats, take those of the first heat.

    Times of a later heat are converted to those of the first, and have its yardstick (`find_heat_yardsticks`).
    """
    found: dict[str, dict[str, Any]] = {}
    firsts: dict[str, float] = {}
    for heat, yardstick in zip(race.heats, find_heat_yardsticks(race.heats), strict=True):
        baseline, runs = str(heat.get("baseline")), as_mapping(heat.get("runs"))
        step_s = as_number(as_mapping(runs.get(baseline)).get("step_s"))
        first_s = firsts.setdefault(baseline, step_s)  # another baseline where the first has left a heat
        for name, figures in runs.items():
            samples = race.samples.get(name, math.nan)
            columns = _make_columns(as_mapping(figures), first_s / step_s if step_s else math.nan, samples)
            if columns is None:
                continue
            about: dict[str, Any] = {"race": race.name, "race_baseline": clean(baseline), "raced_by": clean(str(name))}
            about |= {**race.place, **collect_transport(race.transport)}
            about |= {YARDSTICK: yardstick, RATIO_YARDSTICK: heat.get("yardstick")}
            allowed = race.baseline_setting if baseline == race.tuned_run else None
            about |= {"baseline_setting": allowed, **collect_tuned(race.tuned.get(name))}
            for served in as_list(race.racers.get(name)):
                found.setdefault(os.path.basename(str(served)), {**about, **columns})
    return found


def _make_columns(figures: Mapping[str, Any], scale: float, samples: float) -> dict[str, Any] | None:
    """Return a run's columns from a race; None if the race has no step time of the run.

    Args:
        scale: converts times of this heat to those of the first heat, by the baseline that was in both.
        samples: of all workers in a step; NaN if unknown.
    """
    step_s = as_number(figures.get("step_s")) * scale
    if not 0 < step_s < math.inf:
        return None
    phases = as_mapping(figures.get("phases_s"))
    timed_steps = as_number(figures.get("timed_steps"))
    return {
        "iterations_per_second": 1 / step_s,
        "samples_per_second": samples / step_s,
        "throughput_low": as_number(figures.get("throughput_low")) / scale,
        "throughput_high": as_number(figures.get("throughput_high")) / scale,
        "step_s": step_s,
        **{f"{phase}_s": as_number(phases.get(phase)) * scale for phase in csv_columns.PHASES},
        "throughput_ratio": as_number(figures.get("ratio")),
        "throughput_ratio_low": as_number(figures.get("ratio_low")),
        "throughput_ratio_high": as_number(figures.get("ratio_high")),
        "race_blocks": as_number(figures.get("blocks")),
        "timed_steps": timed_steps,
        "few_steps": timed_steps < timed.FEW,
    }


def apply_race(row: Mapping[str, Any], raced: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a row of `Report.runs` with the figures of the run's race in place of the training's throughput.

    What was measured in the training stays, also in `training_disturbed` and `training_disturbance` whether others
    disturbed it. Flags of the cores and of the network hold if they hold for one of both. Without a race, all times of
    the row are the training's.

    Args:
        row, raced: with the columns on disturbance (`machines.judge_row`).
    """
    of_training = {f"training_{column}": row.get(column) for column in ("disturbed", "disturbance")}
    if raced is None:
        return {**row, **of_training}
    trained = as_number(row.get("iterations_per_second"))
    found = {**row, **of_training, **raced, "trained_iterations_per_second": trained}
    found |= {flag: row.get(flag) or raced.get(flag) for flag in (*_OF_CORES, "network_off", "network_cpu_limited")}
    if math.isnan(raced["samples_per_second"]) and trained:
        of_step = as_number(row.get("samples_per_second")) / trained  # the race has not measured them
        found["samples_per_second"] = of_step * raced["iterations_per_second"]
    return found
