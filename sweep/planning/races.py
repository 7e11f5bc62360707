"""Which runs of a sweep race against each other."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.files import read_json
from gradsweep.run_directory import RACE_PLAN, RACES, Run
from gradsweep.signature import canonical
from sweep.settings.resolved_point import ResolvedPoint

SHARED = (
    *("workers", "threads_per_worker", "device", "gpus", "gpus_per_node", "network", "mpi", "launcher"),
    *("model", "dataset", "batch", "phases", "batch_norm", "precision", "channels_last", "compile"),
)
"""Sections of a config that runs of a race have in common: where they compute, and what is equal work for all."""

FREE = (
    *("seed", "epochs", "max_steps", "optimizer.lr", "optimizer.weight_decay", "schedule", "scaling", "partition"),
    *("warmup_steps", "measure_every", "check_every", "evaluate_every"),
    *("sweep", "race", "data", "checkpoint", "trackers"),
)
"""Keys that do not change what a step costs: of runs that differ in nothing else, one races for all."""


@dataclasses.dataclass(frozen=True)
class RaceGroup:
    """Runs that race against each other.

    Attributes:
        directory: of the race.
        racers: the runs that race, and for each all runs of which it has the throughput; the first is the baseline.
    """

    directory: Path
    racers: Mapping[Run, tuple[Run, ...]]

    @property
    def baseline(self) -> Run:
        return next(iter(self.racers))

    def build_plan(self, seconds: float, precision: float, without: Mapping[str, str]) -> dict[str, Any]:
        """Return the content of plan.json.

        Args:
            without: runs that do not race after all, by name, and why.
        """
        racers = {run: served for run, served in self.racers.items() if run.name not in without}
        return {
            "runs": [f"../../{run.directory.parent.name}/{run.name}" for run in racers],
            "seconds": seconds,
            "precision": precision,
            "seed": int(hashlib.sha256(self.directory.name.encode()).hexdigest()[:8], 16),
            "racers": {run.name: [each.name for each in served] for run, served in self.racers.items()},
            "without": dict(without),
        }

    def is_planned(self) -> bool:
        """Tell whether a race of just these runs was begun in the directory."""
        plan = read_json(self.directory / RACE_PLAN) or {}
        return bool(plan.get("racers") == self.build_plan(0, 0, {})["racers"])


def group_runs(sweep: Path, points: Mapping[Run, ResolvedPoint]) -> list[RaceGroup]:
    """Return the races of these runs of a sweep; runs that nothing can be compared with are in none."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run, point in points.items():
        place = canonical({key: point.config.get(key) for key in SHARED})
        groups.setdefault(place, {}).setdefault(_describe_costs(point.config), []).append(run)
    races = []
    for place, costs in groups.items():
        racers = [tuple(runs) for runs in costs.values()]
        racers.sort(key=lambda runs: points[runs[0]].config["compressor"]["name"] != "none")  # stable: grid's order
        if len(racers) > 1:
            workers = points[racers[0][0]].config["workers"]
            name = f"workers={workers}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
            races.append(RaceGroup(sweep / RACES / name, {runs[0]: runs for runs in racers}))
    return races


def _describe_costs(config: Mapping[str, Any]) -> str:
    """Return what a step of the run costs, as a text: its config without the keys that are free."""
    kept = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for key in FREE:
        section, _, option = key.partition(".")
        if option:
            kept[section].pop(option, None)
        else:
            kept.pop(section, None)
    return canonical(kept)
