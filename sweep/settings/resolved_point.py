"""`ResolvedPoint`: a point with a checked config, as planning, launch, driver and attempts use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sweep.directory.run_identity import Point
from sweep.settings.launcher import Options, parse_options
from sweep.settings.mpi import MpiSettings
from sweep.settings.race import RaceSettings, parse_race
from sweep.settings.sweep import SweepSettings, parse_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedPoint(Point):
    """A point with the parsed sections `sweep`, `mpi`, `race` and `launcher` of its config."""

    settings: SweepSettings
    mpi: MpiSettings
    race: RaceSettings
    options: Options
    """The launcher's."""


def parse_point(config: Mapping[str, Any]) -> ResolvedPoint:
    """Parse the sections `sweep`, `mpi`, `race` and `launcher` of a run's config, and return its point.

    Raises:
        UsageError: a value is out of range, or the MPI launcher does not exist.
    """
    settings, mpi = parse_settings(config)
    return ResolvedPoint(
        dict(config), {}, settings=settings, mpi=mpi, race=parse_race(config), options=parse_options(config["launcher"])
    )
