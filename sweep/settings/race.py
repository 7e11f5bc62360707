"""The section `race` of a config: whether and how a sweep's runs race."""

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
        seconds: the longest duration of a heat.
        precision: a heat ends when half the width of each ratio's 95 % interval, relative to the ratio, is this small.
        tune: whether the baseline `none` races with the fastest setting of its exchange, which a trial finds.
    """

    mode: str = choice(AUTO, *MODES)
    seconds: float = number(10.0, low=0, high=86400, above=True)
    precision: float = number(0.03, low=0, high=1, above=True)
    tune: bool = boolean(True)


WITHOUT = RaceSettings(OFF)
"""What holds for sweeps of versions that could not race."""


def parse_race(config: Mapping[str, Any]) -> RaceSettings:
    """Return the checked section `race` of a composed config; without the key `tune` (earlier versions) it is false.

    Raises:
        UsageError: a value is out of range, or a key is unknown.
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
