"""The section `race` of a config: whether and how the throughput of a sweep's runs is raced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gradsweep.errors import bad_value
from gradsweep.options.parameters import InvalidParameter, boolean, check, choice, number
from sweep.settings.sections import parse_section

MODES = AUTO, OFF, ONLY = "auto", "off", "only"


@dataclasses.dataclass
class RaceSettings:
    """The section `race` of a config.

    Attributes:
        mode: `auto` races after training, `only` instead of it, `off` not at all.
        seconds: of a heat, at most.
        precision: half the width of a ratio's 95 % interval, relative to the ratio, at which a heat ends.
        tune: the baseline `none` races with the setting of its exchange that a trial finds to be the fastest.
    """

    mode: str = choice(AUTO, *MODES)
    seconds: float = number(10.0, low=0, high=86400, above=True)
    precision: float = number(0.03, low=0, high=1, above=True)
    tune: bool = boolean(True)


WITHOUT = RaceSettings(OFF)
"""What holds for sweeps of versions that could not race."""


def parse_race(config: Mapping[str, Any]) -> RaceSettings:
    """Return the checked section `race` of a composed config; without `tune`, as in earlier versions, nothing is tuned.

    Raises:
        UsageError: a value out of range, or an unknown key.
    """
    if "race" not in config:
        return WITHOUT
    settings = parse_section(config, "race", RaceSettings)
    settings.tune = config["race"].get("tune", False)
    try:
        check(settings)
    except InvalidParameter as error:
        raise bad_value(f"race.{error.name}", error.value, error.valid, error.meant) from error
    return settings
