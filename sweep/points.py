"""The points of a sweep, checked before anything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep import compose
from sweep.expressions import Choice
from sweep.launchers import Options, options_of
from sweep.run import UsageError
from sweep.settings import MpiSettings, SweepSettings, settings_of
from sweep.sharing import Sections


@dataclasses.dataclass(frozen=True)
class TakenOut:
    """A point that sweep.exclude or sweep.include has taken out of the grid."""

    overrides: Mapping[str, str]
    why: str


@dataclasses.dataclass(frozen=True)
class Points:
    """What is left of a grid, and what was taken out of it."""

    configs: list[dict[str, Any]]
    """Resolved, in order; equal sections are the same objects."""

    overrides: list[Mapping[str, str]]
    numbers: list[int]
    """Of the points that are left, in the whole grid, from 0."""

    taken_out: list[TakenOut]
    settings: SweepSettings
    mpi: MpiSettings


def check(
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Points:
    """Take points out as sweep.exclude and sweep.include say, and see that the others can be run as one sweep.

    Raises:
        UsageError: a point cannot work, none is left, or they differ in what all runs of a sweep have in common.
    """
    if not configs:
        raise UsageError("the grid has no points: valid is at least one value for every key")
    for config in configs:
        for place in ("sweep", "mpi"):
            if config[place] != configs[0][place]:
                differ = (key for key, value in configs[0][place].items() if config[place].get(key) != value)
                name = ".".join([place, *differ][:2])
                raise UsageError(f"{name}: cannot be swept; valid is one value for all runs of a sweep")
        if config["launcher"].get("cluster") != configs[0]["launcher"].get("cluster"):
            raise UsageError("hydra.launcher.cluster: cannot be swept; valid is one launcher for all runs of a sweep")
    sweep = SweepSettings(**{key: configs[0]["sweep"].get(key, []) for key in ("exclude", "include")})
    choice = Choice(sweep.expressions("include"), sweep.expressions("exclude"), configs, compose.MEMBERS)
    numbers: list[int] = []
    taken_out: list[TakenOut] = []
    for number, config in enumerate(configs):
        why = choice.why_not(config)
        if why is None:
            numbers.append(number)
        else:
            taken_out.append(TakenOut(overrides[number], why))
    if not numbers:
        causes = ", ".join(dict.fromkeys(each.why for each in taken_out))
        raise UsageError(f"{causes}: takes out all {len(configs)} points; valid is what leaves at least one")
    shared = Sections()
    resolved = [shared.settled(resolve(configs[number]), configs[number]) for number in numbers]
    settings, mpi = settings_of(resolved[0])
    known: dict[int, Options] = {}  # by the section, of which equal ones are one object
    for config in resolved:
        if id(config["launcher"]) not in known:
            known[id(config["launcher"])] = options_of(config["launcher"])
        options = known[id(config["launcher"])]
        for option in options.ONE:
            if config["launcher"].get(option) != resolved[0]["launcher"].get(option):
                raise UsageError(
                    f"hydra.launcher.{option}: cannot be swept; valid is one value for all runs of a sweep"
                )
        options.check_run(config, settings)
    return Points(resolved, [overrides[number] for number in numbers], numbers, taken_out, settings, mpi)
