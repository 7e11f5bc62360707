"""Choose the cores for a sweep's runs: all that this process may use, or those that hydra.launcher.cores selects."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import groupby

from gradsweep.errors import bad_value
from sweep.system import cgroups

_RANGE = re.compile(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*")
_MOST = 1 << 16  # cores that a range may name


def choose_cores(value: object) -> tuple[list[int], int]:
    """Return the cores for runs, and how many of them may be in use at the same time, as `hydra.launcher.cores` says.

    Args:
        value: None: all cores, but at the same time no more than a container's CPU limit; an integer: any cores, but at
            most so many at the same time; else a list of core numbers, or a text such as `0-3,8`.

    Raises:
        UsageError: the value is none of these, or names cores that this process may not use.
    """
    usable = sorted(os.sched_getaffinity(0))
    if value is None:
        time = cgroups.read_cpu_limit()
        return usable, len(usable) if time is None else max(1, min(len(usable), int(time)))
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= len(usable):
        return usable, value
    named = _parse_cores(value)
    if not named or len(set(named)) < len(named) or not set(named) <= set(usable):
        valid = f"null, a number from 1 to {len(usable)}, or a list of cores out of {format_cores(usable)}, each once"
        raise bad_value("hydra.launcher.cores", value, valid)
    return sorted(named), len(named)


def _parse_cores(value: object) -> list[int] | None:
    if isinstance(value, list):
        return value if all(type(core) is int for core in value) else None
    if not isinstance(value, str):
        return None
    cores: list[int] = []
    for match in map(_RANGE.fullmatch, value.split(",")):
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST:
            return None
        cores += range(first, last + 1)
    return cores


def format_cores(cores: Iterable[int]) -> str:
    """Return core numbers as a text in taskset's format, such as 0-3,8."""
    groups = (list(group) for _, group in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0]))
    runs = ((group[0][1], group[-1][1]) for group in groups)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
