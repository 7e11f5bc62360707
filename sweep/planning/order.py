"""The order in which a sweep's runs start: runs to compare start one after the other, all else longest first.

A machine's speed may change within an hour for no visible reason. So runs that are compared with each other start one
after the other: seed by seed, and for each seed all methods in a random order, so that no method is always first.
Groups of runs that are not compared with each other, such as those with different numbers of workers, start longest
first, so that the cores are busy to the end. For the same reason the very last runs, as many as run side by side
anyway, start longest first.

The random order is that of the runs' signatures, which are hashes. So it differs between seeds, but is the same in a
dry run, in the sweep itself and in its resume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.run_directory import count_ranks
from gradsweep.signature import canonical, fill_added, signature
from sweep.planning.races import SHARED
from sweep.system import cores

COMPARED = (*SHARED, "epochs", "max_steps")
"""Sections and keys of a config in which runs that are compared are equal."""


def arrange_runs(runs: Sequence[tuple[Mapping[str, Any], float | None]]) -> list[int]:
    """Return the indices of runs in the order in which they should start.

    Args:
        runs: the config and the estimated seconds (None: unknown) of each run of a sweep.
    """
    if not runs:
        return []
    most = count_shared_cores(runs[0][0])
    groups: dict[str, list[int]] = {}
    for index, (config, _) in enumerate(runs):
        filled = fill_added(config)
        groups.setdefault(canonical({key: filled.get(key) for key in COMPARED}), []).append(index)
    ranks = [(config["seed"], signature(config)) for config, _ in runs]
    lengths = [_compute_length(config, seconds, most) for config, seconds in runs]
    longest_first = sorted(groups.values(), key=lambda group: max(lengths[index] for index in group), reverse=True)
    *before, last = [sorted(group, key=ranks.__getitem__) for group in longest_first]
    side_by_side = 1 if most is None else _count_side_by_side(runs[last[0]][0], most)
    last[-side_by_side:] = sorted(last[-side_by_side:], key=lengths.__getitem__, reverse=True)
    return [index for group in [*before, last] for index in group]


def count_shared_cores(config: Mapping[str, Any]) -> int | None:
    """Return how many of this machine's cores a sweep can use at the same time; None if a scheduler has the cores."""
    launcher = config["launcher"]
    return cores.choose_cores(launcher.get("cores"))[1] if launcher["cluster"] == "local" else None


def _compute_length(config: Mapping[str, Any], seconds: float | None, most: int | None) -> tuple[Any, ...]:
    """Return a sort key that is greater for longer runs: unknown before known core-seconds, then steps and epochs."""
    used = _count_cores(config, most)
    if seconds is not None:
        return (False, used * seconds)
    return (True, used, math.inf if config["max_steps"] is None else config["max_steps"], config["epochs"])


def _count_cores(config: Mapping[str, Any], most: int | None) -> int:
    wanted = count_ranks(config) * int(config["threads_per_worker"])
    return wanted if most is None else min(wanted, most)


def _count_side_by_side(config: Mapping[str, Any], most: int) -> int:
    """Return how many runs like this one can run at the same time."""
    limit = config["sweep"].get("max_parallel")
    fitting = most // _count_cores(config, most)
    return fitting if limit is None else min(fitting, limit)
