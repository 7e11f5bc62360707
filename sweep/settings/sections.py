"""Converts sections of a config to the dataclasses of their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from gradsweep.errors import LISTED_BY, UsageError
from gradsweep.options.hints import did_you_mean, one_of

T = TypeVar("T")


def parse_section(config: Mapping[str, Any], name: str, cls: type[T]) -> T:
    """Return the section `name` of a config as an instance of `cls`, without a check of its values.

    Raises:
        UsageError: the section is missing, or has a key that `cls` does not have.
    """
    section = config.get(name)
    if not isinstance(section, Mapping):
        raise UsageError(f"{name}: missing from the config")
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in section:
        if key not in known:
            meant = did_you_mean(f"{name}.{key}", [f"{name}.{each}" for each in known])
            raise UsageError(f"{name}.{key}: unknown key; {meant}valid is {one_of(known, LISTED_BY, 'keys')}")
    return cls(**section)
