"""Choose the cores that a sweep may share out: those that this process may use, or the user's part of them."""

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
    """Return the cores to share out, and how many may be used at a time, by `hydra.launcher.cores`.

    Args:
        value: None: all, but at the same time no more than a container's quota of CPU time; a number: so many at the
            same time, whichever are free; a list of cores, or a text such as `0-3,8`.

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
    """Return the text of core numbers in taskset's format: 0-3,8."""
    groups = (list(group) for _, group in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0]))
    runs = ((group[0][1], group[-1][1]) for group in groups)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
