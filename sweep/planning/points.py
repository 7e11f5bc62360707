"""The points of a sweep, checked before anything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradsweep.errors import UsageError
from sweep.config import idle_options as idling
from sweep.config import schema
from sweep.config.interning import Sections
from sweep.console.step_counter import counted
from sweep.directory import run_identity
from sweep.launchers.launchers import Launcher, build_launcher
from sweep.planning import invalid_points
from sweep.planning.conditions import Choice
from sweep.planning.invalid_points import TakenOut
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import REFUSE, SweepSettings, settings_of

_CHOOSING = ("exclude", "include", "invalid")


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
    *,
    idle: idling.Idle | None = None,
    whole: bool = True,
    begun: bool = False,
) -> Points:
    """Take points out as sweep.exclude, sweep.include and sweep.invalid say, and see that the others can be run as one
    sweep.

    Args:
        idle: tells what was typed and decides nothing; None: nobody minds.
        whole: these are all points of the sweep; else they are a batch of a search.
        begun: it has had a batch before in which points could work; then none of this one's need to.

    Raises:
        UsageError: a point cannot work that is not to be left out, none is left, or they differ in what all runs of a
            sweep have in common.
    """
    if not configs:
        raise UsageError("the grid has no points: valid is at least one value for every key")
    _check_alike(configs)
    sweep = SweepSettings(**{key: value for key, value in configs[0]["sweep"].items() if key in _CHOOSING})
    numbers, taken_out = _chosen(sweep, configs, overrides)
    if not numbers and not begun:
        causes = ", ".join(dict.fromkeys(each.why for each in taken_out))
        raise UsageError(f"{causes}: takes out all {len(configs)} points; valid is what leaves at least one")
    resolved, refused = _resolved({number: configs[number] for number in numbers}, resolve, sweep.invalid)
    worked = list(resolved)
    if whole:
        typed = (
            [run_identity.drop_undecided(config, overrides[number]) for number, config in resolved.items()]
            if refused
            else []
        )
        refusal = invalid_points.refusal(sweep.invalid, refused, typed, overrides)
    else:
        refusal = invalid_points.refusal_of_batch(sweep.invalid, refused, bool(worked), begun)
    if refusal is not None:
        raise refusal
    taken_out += [TakenOut(overrides[number], str(why), impossible=True) for number, why in refused.items()]
    points = Points(
        list(resolved.values()), [overrides[number] for number in worked], worked, taken_out, *settings_of(configs[0])
    )
    if idle is not None:
        if whole:  # what a search tries next may need it
            idling.refuse(points.configs, points.overrides, idle)
        idling.refuse_settings(points.settings, points.configs, overrides[0], search=not whole)
    _check_launcher(points)
    return points


def _check_alike(configs: Sequence[Mapping[str, Any]]) -> None:
    """Raises UsageError for points that differ in what all runs of a sweep have in common."""
    for config in configs:
        for place in ("sweep", "mpi"):
            if config[place] != configs[0][place]:
                differ = (key for key, value in configs[0][place].items() if config[place].get(key) != value)
                name = ".".join([place, *differ][:2])
                raise UsageError(f"{name}: cannot be swept; valid is one value for all runs of a sweep")
        if config["launcher"].get("cluster") != configs[0]["launcher"].get("cluster"):
            raise UsageError("hydra.launcher.cluster: cannot be swept; valid is one launcher for all runs of a sweep")


def _resolved(
    configs: Mapping[int, Mapping[str, Any]], resolve: Callable[[Mapping[str, Any]], dict[str, Any]], invalid: str
) -> tuple[dict[int, dict[str, Any]], dict[int, UsageError]]:
    """Points that can work, resolved, and why others cannot, by number; with `refuse` up to the first of these."""
    shared = Sections()
    resolved: dict[int, dict[str, Any]] = {}
    refused: dict[int, UsageError] = {}
    for number, config in counted("points checked", configs.items()):
        try:
            resolved[number] = shared.settled(resolve(config), config)
        except UsageError as error:
            refused[number] = error
            if invalid == REFUSE:
                break
    return resolved, refused


def _chosen(
    sweep: SweepSettings, configs: Sequence[Mapping[str, Any]], overrides: Sequence[Mapping[str, str]]
) -> tuple[list[int], list[TakenOut]]:
    """The numbers of the points that sweep.include and sweep.exclude leave in a grid, and those that they take out."""
    choice = Choice(sweep.expressions("include"), sweep.expressions("exclude"), configs, schema.MEMBERS)
    numbers: list[int] = []
    taken_out: list[TakenOut] = []
    for number, config in enumerate(configs):
        why = choice.why_not(config)
        if why is None:
            numbers.append(number)
        else:
            taken_out.append(TakenOut(overrides[number], why))
    return numbers, taken_out


def _check_launcher(points: Points) -> None:
    """Raises UsageError for a point that the launcher cannot start as its options say."""
    launchers: dict[int, Launcher] = {}  # by the section, of which equal ones are one object
    for config in points.configs:
        if id(config["launcher"]) not in launchers:
            launchers[id(config["launcher"])] = build_launcher(config["launcher"])
        launcher = launchers[id(config["launcher"])]
        for option in launcher.options.ONE:
            if config["launcher"].get(option) != points.configs[0]["launcher"].get(option):
                raise UsageError(
                    f"hydra.launcher.{option}: cannot be swept; valid is one value for all runs of a sweep"
                )
        launcher.check_run(config, points.settings)
