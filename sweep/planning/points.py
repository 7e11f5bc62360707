"""Checks the points of a sweep before anything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.run_directory import is_script
from gradsweep.signature import DECIDING
from sweep.config import idle_options as idling
from sweep.config import schema
from sweep.config.interning import Sections
from sweep.console.step_counter import count_through
from sweep.directory.run_identity import find_swept_keys, name_points, select_deciding_overrides
from sweep.launchers.launchers import check_network, check_run
from sweep.planning import invalid_points
from sweep.planning.conditions import PointFilter
from sweep.planning.invalid_points import TakenOut
from sweep.planning.races import refuse_nothing_to_race
from sweep.provenance.secrets import refuse_in_script
from sweep.settings.launcher import Options, parse_options
from sweep.settings.mpi import MpiSettings, choose_transport, parse_mpi
from sweep.settings.race import RaceSettings, parse_race
from sweep.settings.resolved_point import ResolvedPoint
from sweep.settings.sweep import REFUSE, SweepSettings, parse_settings

_CHOOSING = ("exclude", "include", "invalid")


@dataclasses.dataclass(frozen=True)
class Points:
    """The points of a grid to run, and the points that are left out."""

    points: list[ResolvedPoint]
    """In order; equal sections of their configs are the same objects."""

    overrides: list[Mapping[str, str]]
    """Of each, as typed, by key."""

    numbers: list[int]
    """Of the points that are left, in the whole grid, from 0."""

    taken_out: list[TakenOut]
    settings: SweepSettings
    mpi: MpiSettings
    swept: list[str] = dataclasses.field(default_factory=list)
    """The keys whose values differ between the points."""


def check_points(
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    idle: idling.Idle | None = None,
    whole: bool = True,
    begun: bool = False,
    earlier: Sequence[Mapping[str, str]] = (),
    silent: bool = False,
) -> Points:
    """Leave points out by sweep.exclude, sweep.include and sweep.invalid, check the others, and name their runs.

    Args:
        idle: finds typed options without effect, which are refused; None: they are not refused.
        whole: these are all points of the sweep; else they are a batch of a search.
        begun: the search has had an earlier batch with valid points, so all points of this batch may be invalid.
        earlier: the overrides of the points of earlier batches.
        silent: do not report progress.

    Raises:
        UsageError: a point that must not be left out cannot work, no point is left, or the points differ in a setting
            that all runs of a sweep share.
    """
    if not configs:
        raise UsageError("the grid has no points: valid is at least one value for every key")
    _check_alike(configs)
    choosing = SweepSettings(**{key: value for key, value in configs[0]["sweep"].items() if key in _CHOOSING})
    numbers, taken_out = _choose(choosing, configs, overrides)
    if not numbers and not begun:
        causes = ", ".join(dict.fromkeys(each.why for each in taken_out))
        raise UsageError(f"{causes}: takes out all {len(configs)} points; valid is what leaves at least one")
    resolved, refused = _resolve({number: configs[number] for number in numbers}, resolve, choosing.invalid, silent)
    if whole:
        decided = (
            [select_deciding_overrides(config, overrides[number]) for number, config in resolved.items()]
            if refused
            else []
        )
        refusal = invalid_points.find_refusal(choosing.invalid, refused, decided, overrides)
    else:
        refusal = invalid_points.find_refusal_of_batch(choosing.invalid, refused, bool(resolved), begun)
    if refusal is not None:
        raise refusal
    taken_out += [TakenOut(overrides[number], str(why), impossible=True) for number, why in refused.items()]
    settings, mpi = parse_settings(configs[0])
    race = parse_race(configs[0])
    worked, typed = list(resolved.values()), [overrides[number] for number in resolved]
    if idle is not None:
        if whole:  # what a search tries next may need it
            idling.refuse(worked, typed, idle)
        idling.refuse_settings(settings, worked, overrides[0], search=not whole)
    points = _build_points(worked, typed, [*earlier, *typed], settings, race)
    refuse_nothing_to_race(points, search=not whole, more=settings.resume is not None)
    return Points(points, typed, list(resolved), taken_out, settings, mpi, find_swept_keys([*earlier, *typed]))


def _build_points(
    configs: Sequence[dict[str, Any]],
    typed: Sequence[Mapping[str, str]],
    among: Sequence[Mapping[str, str]],
    settings: SweepSettings,
    race: RaceSettings,
) -> list[ResolvedPoint]:
    """Return the resolved points with their names and launcher's options; check that the launcher can start them.

    Raises:
        UsageError: the launcher cannot start a point with its options, or the MPI library lacks its transport.
    """
    parsed: dict[int, Options] = {}  # by the section, of which equal ones are one object
    started_by: dict[int, MpiSettings] = {}  # likewise
    points = []
    for named in name_points(configs, typed, among):
        section = named.config["launcher"]
        if id(section) not in parsed:
            parsed[id(section)] = parse_options(section)
        options = parsed[id(section)]
        for option in options.PER_SWEEP:
            if section.get(option) != configs[0]["launcher"].get(option):
                raise UsageError(
                    f"hydra.launcher.{option}: cannot be swept; valid is one value for all runs of a sweep"
                )
        if id(named.config["mpi"]) not in started_by:
            started_by[id(named.config["mpi"])] = parse_mpi(named.config)
        mpi = started_by[id(named.config["mpi"])]
        check_run(options, named.config, settings)
        points.append(
            ResolvedPoint(
                named.config, named.swept, named.overrides, settings=settings, mpi=mpi, race=race, options=options
            )
        )
    return points


def _check_alike(configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError if the points differ in settings that all runs of a sweep must share."""
    for config in configs:
        for place in ("sweep", "race", "mpi"):
            if config.get(place) != configs[0].get(place):
                differ = [key for key, value in configs[0][place].items() if config[place].get(key) != value]
                if differ and not (differ := [key for key in differ if key not in DECIDING.get(place, ())]):
                    continue
                name = ".".join([place, *differ][:2])
                raise UsageError(f"{name}: cannot be swept; valid is one value for all runs of a sweep")
        if config["launcher"].get("cluster") != configs[0]["launcher"].get("cluster"):
            raise UsageError("hydra.launcher.cluster: cannot be swept; valid is one launcher for all runs of a sweep")


def _resolve(
    configs: Mapping[int, Mapping[str, Any]],
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    invalid: str,
    silent: bool,
) -> tuple[dict[int, dict[str, Any]], dict[int, UsageError]]:
    """Return the resolved valid points and the others' errors, by number; with `refuse` stop at the first error."""
    shared = Sections()
    resolved: dict[int, dict[str, Any]] = {}
    refused: dict[int, UsageError] = {}
    for number, config in count_through("points checked", configs.items(), silent=silent):
        try:
            found = resolve(config)
            if is_script(found):
                refuse_in_script(found)
            mpi = choose_transport(found["mpi"], found["launcher"]["cluster"], found.get("network"))
            check_network({**found, "mpi": mpi})
            resolved[number] = shared.share_changed({**found, "mpi": mpi}, config)
        except UsageError as error:
            refused[number] = error
            if invalid == REFUSE:
                break
    return resolved, refused


def _choose(
    sweep: SweepSettings, configs: Sequence[Mapping[str, Any]], overrides: Sequence[Mapping[str, str]]
) -> tuple[list[int], list[TakenOut]]:
    """Return the numbers of the points that sweep.include and sweep.exclude keep, and the points left out."""
    choice = PointFilter(sweep.read_expressions("include"), sweep.read_expressions("exclude"), configs, schema.MEMBERS)
    numbers: list[int] = []
    taken_out: list[TakenOut] = []
    for number, config in enumerate(configs):
        why = choice.explain_exclusion(config)
        if why is None:
            numbers.append(number)
        else:
            taken_out.append(TakenOut(overrides[number], why))
    return numbers, taken_out
