"""The identity of a run: its config's signature, and the name of its directory, made from the swept keys."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep import run_directory, yaml_files
from gradsweep.disk.regular_files import is_regular
from gradsweep.run_directory import SIGNATURE_DIGITS, Run
from gradsweep.signature import NOT_IN_SIGNATURE, signature
from sweep.provenance.secrets import hide_in_word


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a grid: its resolved config, its swept keys with typed values, and all its overrides.

    In `overrides`, the values of secrets (keys such as X_TOKEN) are hidden.
    """

    config: dict[str, Any]
    swept: dict[str, str]
    overrides: tuple[str, ...] = ()


def build_name(swept: Mapping[str, str], longest: int = 120) -> str:
    """Return the swept keys and values as part of a directory's name, with safe characters and limited length."""
    text = ",".join(f"{key}={value}" for key, value in swept.items()) or "run"
    return re.sub(r"[^A-Za-z0-9._=,+-]", "_", text)[:longest]


def find_swept_keys(points: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the override keys whose values differ between the points of a grid, in order of first appearance."""
    keys = list(dict.fromkeys(key for point in points for key in point))
    return [key for key in keys if len({point.get(key) for point in points}) > 1]


def name_points(
    configs: Sequence[dict[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    among: Sequence[Mapping[str, str]] | None = None,
) -> list[Point]:
    """Return the points of a grid, with the swept keys that name their runs; a single run is named by its overrides.

    Args:
        among: the overrides of these points and of the sweep's earlier points; None: there are no earlier points.
    """
    shown = find_swept_keys(among or overrides) or [
        key for typed in overrides[:1] for key in typed if key.partition(".")[0] not in NOT_IN_SIGNATURE
    ]
    points = []
    for config, typed in zip(configs, overrides, strict=True):
        named = select_deciding_overrides(config, typed)
        words = tuple(hide_in_word(f"{key}={value}") for key, value in typed.items())
        points.append(Point(config, {key: named[key] for key in shown if key in named}, words))
    return points


def select_deciding_overrides(config: Mapping[str, Any], typed: Mapping[str, str]) -> dict[str, str]:
    """Return those overrides of a run that have an effect on the run.

    If a group is `none` in the resolved `config`, such as the topology of a run that is not decentralised, it is `none`
    in the returned overrides, and overrides of its options are dropped.
    """
    found = {}
    for key, value in typed.items():
        group, _, option = key.partition(".")
        part = config.get(group)
        if not isinstance(part, Mapping) or part.get("name") != "none":
            found[key] = value
        elif not option:
            found[key] = "none"
    return found


def read_signature(run: Run) -> str | None:
    """Return the full signature of an existing run, from state.json or config.yaml; None if neither gives it."""
    known = run.state().get("signature")
    if isinstance(known, str):
        return known
    return None if is_blocked(run) else _sign_config(run)


def is_blocked(run: Run) -> bool:
    """Tell whether something other than a regular file, such as a directory, is in the place of state.json."""
    return os.path.lexists(run.path(run_directory.STATE)) and not is_regular(run.path(run_directory.STATE))


def _sign_config(run: Run) -> str | None:
    """Return the signature of the present config.yaml; None if the file cannot be read."""
    try:
        return signature(yaml_files.read_sections(run.path(run_directory.CONFIG)))
    except (OSError, ValueError, TypeError):  # TypeError: a value that no JSON has, such as a date
        return None


def explain_unfit(run: Run) -> str | None:
    """Return why an existing run cannot be computed: its files were removed or changed; None if it can."""
    if not run.directory.is_dir():
        return "the directory of the run has been removed; a resume lays it out again"
    known = run.state().get("signature")
    if not isinstance(known, str):  # state.json is gone, too, or damaged
        known = run.signature
    if not re.fullmatch(rf"[0-9a-f]{{{SIGNATURE_DIGITS},}}", known):
        return None
    if (_sign_config(run) or "").startswith(known):
        return None
    return f"{run_directory.CONFIG} has been removed or changed; the sweep's command with sweep.resume= writes it again"
