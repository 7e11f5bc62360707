"""Decides which runs of a sweep race against each other."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gradsweep.disturbance import SweepYardsticks
from gradsweep.errors import bad_value
from gradsweep.files import read_json
from gradsweep.options.exchange_setting import OPTIONS
from gradsweep.run_directory import DIVERGED, DONE, FAILED, RACE_PLAN, RACES, RATIOS, TIMEOUT, Run, is_script, runs_of
from gradsweep.signature import canonical, fill_added
from gradsweep.text import duration, plural
from sweep.settings.race import ONLY, RaceSettings
from sweep.settings.resolved_point import ResolvedPoint

K = TypeVar("K")

BASELINE = "none"
"""The compressor of the run that others are compared with."""

SHARED = (
    *("workers", "threads_per_worker", "device", "gpus", "gpus_per_node", "network", "mpi", "launcher"),
    *("model", "dataset", "batch", "phases", "batch_norm", "precision", "channels_last", "compile"),
)
"""Sections of a config that runs of a race have in common: where they compute, and what is equal work for all."""

FREE = (
    *("seed", "epochs", "max_steps", "optimizer.lr", "optimizer.weight_decay", "schedule", "scaling", "partition"),
    *("warmup_steps", "measure_every", "check_every", "evaluate_every", "evaluate_every_steps", "tokens"),
    *("sweep", "race", "data", "checkpoint", "trackers"),
)
"""Keys that do not change what a step costs: of runs that differ in nothing else, one races for all."""


@dataclasses.dataclass(frozen=True)
class RaceGroup:
    """The runs that take part in one race.

    Attributes:
        directory: the race's directory.
        racers: maps each run that races to the runs with the same cost per step, to which its throughput applies, too
            (with itself). The first racer is the baseline.
    """

    directory: Path
    racers: Mapping[Run, tuple[Run, ...]]

    @property
    def baseline(self) -> Run:
        return next(iter(self.racers))

    def build_plan(
        self, seconds: float, precision: float, without: Mapping[str, str], untuned: str | None = None
    ) -> dict[str, Any]:
        """Return the content of the race's plan.json.

        Args:
            without: the names of runs that are left out of the race, each with the reason.
            untuned: why the baseline's exchange is not tuned; None: it is tuned.
        """
        racers = {run: served for run, served in self.racers.items() if run.name not in without}
        return {
            "runs": [f"../../{run.directory.parent.name}/{run.name}" for run in racers],
            "seconds": seconds,
            "precision": precision,
            "seed": int(hashlib.sha256(self.directory.name.encode()).hexdigest()[:8], 16),
            "racers": {run.name: [each.name for each in served] for run, served in self.racers.items()},
            "without": dict(without),
            "untuned": untuned,
        }

    def is_raced(self) -> bool:
        """Tell whether the race has ended and its measurements exist."""
        race = Run(self.directory)
        return self.is_planned() and race.result() is not None and bool(read_json(race.path(RATIOS)))

    def is_planned(self) -> bool:
        """Tell whether plan.json has the same groups of runs with equal costs, whichever run of each group races."""
        planned = _as_mapping((read_json(self.directory / RACE_PLAN) or {}).get("racers"))
        known = {frozenset(map(str, _as_list(names))) for names in planned.values()}
        return known == {frozenset(run.name for run in runs) for runs in self.racers.values()}


def explain_untuned(race: RaceSettings, config: Mapping[str, Any], overrides: Sequence[str]) -> str | None:
    """Return why the exchange of a race's baseline is not tuned; None if a trial is to find its fastest setting.

    Args:
        config: the config of the baseline's run.
        overrides: the typed overrides of that run.
    """
    if not race.tune:
        return "race.tune=false"
    typed = {word.lstrip("+").partition("=")[0] for word in overrides}
    for option in OPTIONS:
        if f"exchange.{option}" in typed or config["exchange"].get(option) not in (None, False):
            return f"exchange.{option} is set"
    return None


def refuse_nothing_to_race(points: Sequence[ResolvedPoint], *, search: bool = False, more: bool = False) -> None:
    """Refuse race=only if no two points can be compared, or if a search needs results.

    Args:
        search: the points are a batch of a search.
        more: the sweep may have other points already.

    Raises:
        UsageError: race=only has nothing to do.
    """
    if not points or points[0].race.mode != ONLY:
        return
    if search:
        raise bad_value("race", ONLY, "auto or off in a search, which goes by the results of its runs")
    if not more and not _group({number: point.config for number, point in enumerate(points)}):
        raise bad_value("race", ONLY, "auto, or a grid of at least two methods with the same model and workers")


def describe_races(count: int, settings: RaceSettings) -> str:
    """Return a line on the races that a sweep would run, with their duration if each race has one heat."""
    when = "instead of training" if settings.mode == ONLY else "after training"
    most = f"at most {settings.seconds:g} s a heat"
    return f"{when}: {plural(count, 'race')} of {most}, in all {duration(count * settings.seconds)}, and their set-up"


def find_missing_races(sweep: Path, configs: Mapping[Run, Mapping[str, Any]]) -> list[RaceGroup]:
    """Return those races of a sweep's runs that have not been run, or must be run again."""
    return [group for group in group_runs(sweep, configs) if not group.is_raced()]


def find_disturbed(sweep: Path, configs: Mapping[Run, Mapping[str, Any]]) -> list[RaceGroup]:
    """Return the races that measure disturbed throughputs again (sweep.remeasure).

    These are the disturbed races, and for each disturbed run that has not raced a race of this run alone. A run that
    was left out of its race is not measured again, and neither is one with trainer=script.
    """
    configs = {run: config for run, config in configs.items() if not is_script(config)}
    settled: set[str] = set()
    for race in runs_of(sweep, RACES):
        ratios = read_json(race.path(RATIOS)) or {}
        racers = _as_mapping(ratios.get("racers"))
        settled.update(_as_mapping(ratios.get("left_out")))
        heats = map(_as_mapping, _as_list(ratios.get("heats")))
        racing = [name for heat in heats for name in _as_mapping(heat.get("runs"))]
        settled.update(str(each) for name in racing for each in _as_list(racers.get(name)))
    yardsticks = SweepYardsticks.read(sweep)
    alone = [RaceGroup(sweep / RACES / run.name, {run: (run,)}) for run in configs]
    again = [race for race in (*group_runs(sweep, configs), *alone) if yardsticks.explain_race(race.directory.name)]
    again = [race for race in again if race.is_raced()]
    disturbed = {run for run in configs if run.status() == DONE and yardsticks.explain_training(run.name)}
    return [*again, *(race for race in alone if race.baseline in disturbed and race.baseline.name not in settled)]


def group_runs(sweep: Path, configs: Mapping[Run, Mapping[str, Any]]) -> list[RaceGroup]:
    """Group the runs of a sweep into races; runs that are not comparable with any other run are in no race.

    Of runs with equal costs only one races: preferably one that is done, or else one that has not failed or diverged.
    Runs with trainer=script do not race.
    """
    races = []
    configs = {run: config for run, config in configs.items() if not is_script(config)}
    for place, racers in _group(configs).items():
        workers = configs[racers[0][0]]["workers"]
        name = f"workers={workers}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        races.append(RaceGroup(sweep / RACES / name, {min(runs, key=_rank): runs for runs in racers}))
    return races


def _rank(run: Run) -> int:
    """Return a sort key, smaller for a run that is less likely to fail during a race."""
    status = run.status()
    return 0 if status == DONE else 2 if status in (FAILED, DIVERGED, TIMEOUT) else 1


def _group(configs: Mapping[K, Mapping[str, Any]]) -> dict[str, list[tuple[K, ...]]]:
    """Return, for each race, the tuples of keys whose configs have equal costs, the baseline's tuple first."""
    groups: dict[str, dict[str, list[K]]] = {}
    for key, config in configs.items():
        filled = fill_added(config)
        place = canonical({section: filled.get(section) for section in SHARED})
        groups.setdefault(place, {}).setdefault(_describe_costs(filled), []).append(key)
    found = {}
    for place, costs in groups.items():
        racers = [tuple(keys) for keys in costs.values()]
        racers.sort(key=lambda keys: configs[keys[0]]["compressor"]["name"] != BASELINE)  # stable
        if len(racers) > 1:
            found[place] = racers
    return found


def _describe_costs(config: Mapping[str, Any]) -> str:
    """Return a text of all options on which the cost of a step depends, to compare configs by."""
    kept = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for key in FREE:
        section, _, option = key.partition(".")
        if option:
            kept[section].pop(option, None)
        else:
            kept.pop(section, None)
    return canonical(kept)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a value from a JSON file if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    """Return a value from a JSON file if it is a list, else an empty list."""
    return value if isinstance(value, list) else []
