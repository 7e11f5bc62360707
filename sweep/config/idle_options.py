"""Refuse typed options that have no effect, before anything starts.

`trainers/rules/idle_options.py` decides whether an option has an effect on a run. In a grid, a value is refused if it
has no effect at any of its points: `algorithm=sgd,choco topology=ring,torus` is valid, and `algorithm=sgd
topology=torus` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradsweep.errors import bad_value
from sweep.settings.sweep import SweepSettings

Idle = Callable[[Mapping[str, Any], Iterable[str]], Mapping[str, str]]
"""Returns, for those of some keys that decide nothing in a resolved config, what is valid instead."""

NOTHING = ("", "null", "none")
"""Values that ask for nothing: they take an option away."""

_OPTION = re.compile(r"[{,]\s*(\w+)\s*:\s*([^,{}\[\]]*)")
_GRIDS = "left out of a single run; with -m it is for a grid"
OF_GRIDS = (
    *("zip", "invalid", "max_parallel", "fail_fast", "max_failures"),
    *("metric", "goal", "prune", "prune_startup", "prune_warmup"),
)
"""Settings of a sweep that a single run has no use for."""


def refuse_without_grid(words: Iterable[str]) -> None:
    """Refuse overrides that have an effect only in a grid or a search; called if the command is a single run.

    Raises:
        UsageError: names the first.
    """
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        of_sweeper = key.startswith(("hydra.sweeper.", "hydra/sweeper"))
        if of_sweeper or (key.removeprefix("sweep.") in OF_GRIDS and key.startswith("sweep.") and value not in NOTHING):
            raise bad_value(key, value, _GRIDS)


def refuse_unread(words: Iterable[str], *, grid: bool) -> None:
    """Refuse overrides of Hydra's own options that have no effect in Gradsweep.

    Raises:
        UsageError: names the first.
    """
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key == "hydra.sweep.subdir":
            raise bad_value(key, value, "left out: runs are in runs/ of hydra.sweep.dir")
        if key == "hydra.run.dir" and grid:
            raise bad_value(key, value, "hydra.sweep.dir with -m")


def refuse(configs: Sequence[Mapping[str, Any]], overrides: Sequence[Mapping[str, str]], idle: Idle) -> None:
    """Refuse a typed value that has no effect at any of its points.

    Args:
        configs: resolved configs of the points that can work.
        overrides: key and value of each point's overrides, as typed.

    Raises:
        UsageError: names the first.
    """
    decides: set[tuple[str, str]] = set()
    suspect: dict[tuple[str, str], str] = {}
    for config, typed in zip(configs, map(_split_mappings, overrides), strict=True):
        valid = idle(config, [key for key, value in typed.items() if value not in NOTHING])
        for key, value in typed.items():
            if key in valid:
                suspect.setdefault((key, value), valid[key])
            else:
                decides.add((key, value))
    for (key, value), words in suspect.items():
        if (key, value) not in decides:
            raise bad_value(key, value, words)


def _split_mappings(typed: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides with each mapping (`scaling={rule:sqrt,by:batch}`) split into one override an option."""
    split = dict(typed)
    for key, value in typed.items():
        if value.startswith("{"):
            split.update({f"{key}.{option}": given for option, given in _OPTION.findall(value)})
    return split


def refuse_settings(
    settings: SweepSettings, configs: Sequence[Mapping[str, Any]], typed: Mapping[str, str], *, search: bool
) -> None:
    """Refuse `typed` settings of a sweep that have no effect, and a pruning rule that can never end a run.

    Args:
        configs: the configs of the remaining points.
        search: a search chooses the points by earlier results, so more points may follow.

    Raises:
        UsageError: names the setting.
    """
    prunes = settings.prune is not None
    for key, useful, valid in (
        ("metric", prunes or search, "left out of a grid without sweep.prune: only a search goes by it"),
        ("goal", prunes or search, "left out of a grid without sweep.prune: only a search goes by it"),
        ("prune_startup", prunes, "together with sweep.prune=median"),
        ("prune_warmup", prunes, "together with sweep.prune=median"),
        ("backoff_s", settings.retries > 0, "together with sweep.retries above 0"),
        ("max_failures", not settings.fail_fast, "left out with sweep.fail_fast=true, which is 1"),
    ):
        if typed.get(f"sweep.{key}", "") not in NOTHING and not useful:
            raise bad_value(f"sweep.{key}", getattr(settings, key), valid)
    if not prunes or not configs:
        return
    if not search and settings.resume is None and settings.prune_startup >= len(configs):
        valid = f"an integer below the number of points ({len(configs)}); else none is ever pruned"
        raise bad_value("sweep.prune_startup", settings.prune_startup, valid)
    if not any(_find_last_pruning(config) > settings.prune_warmup for config in configs):
        valid = "a number below that of the last epoch with an evaluation before the end of a run"
        raise bad_value(
            "sweep.prune_warmup", settings.prune_warmup, f"{valid} ({max(map(_find_last_pruning, configs))})"
        )


def _find_last_pruning(config: Mapping[str, Any]) -> int:
    """Return the last epoch after which pruning is possible."""
    every: int = config.get("evaluate_every", 1)  # a script has none
    return (config["epochs"] - 1) // every * every
