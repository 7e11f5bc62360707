"""Words for the setting of an exchange that a trial finds: overlap, size of the parts, algorithm of sums.

The setting is a mapping with the keys overlap, part_mib and allreduce, as in result.json and ratios.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPTIONS = ("overlap", "part_mib", "allreduce")
"""The options of an exchange that a trial finds."""


def describe_setting(setting: Mapping[str, Any]) -> str:
    """Return a setting in words: `overlap, parts of 4 MiB, ring`; nothing for an exchange without a setting."""
    said = []
    if isinstance(setting.get("overlap"), bool):
        said.append("overlap" if setting["overlap"] else "no overlap")
    if isinstance(setting.get("part_mib"), (int, float)) and abs(setting["part_mib"]) < 1e300:
        said.append(f"parts of {setting['part_mib']:.3g} MiB")
    if isinstance(setting.get("allreduce"), str):
        said.append(setting["allreduce"].replace("_", " "))
    return ", ".join(said)


def describe_tuned(tuned: Mapping[str, Any]) -> str:
    """Return what a trial has found, in words: `overlap, parts of 4 MiB, ring; 9 settings tried`."""
    tried = tuned.get("tried")
    count = len(tried) if isinstance(tried, list) else 0
    return f"{describe_setting(tuned)}; {count} setting{'s' * (count != 1)} tried"


def find_tuned_run(ratios: Mapping[str, Any]) -> str | None:
    """Return the name of the run to whose exchange `tuned` or `untuned` of a race's ratios.json applies.

    Earlier versions did not write it: the first of `racers`, or else the baseline of the first heat.
    """
    named, racers, heats = (ratios.get(key) for key in ("tuned_run", "racers", "heats"))
    if isinstance(named, str):
        return named
    if isinstance(racers, Mapping) and racers:
        return str(next(iter(racers)))
    first = heats[0] if isinstance(heats, list) and heats else None
    return str(first.get("baseline")) if isinstance(first, Mapping) else None


def describe_baseline(ratios: Mapping[str, Any]) -> str | None:
    """Return in words whether the baseline of a race was tuned, and its setting; None if ratios.json does not say."""
    tuned, untuned = ratios.get("tuned"), ratios.get("untuned")
    if isinstance(tuned, Mapping):
        return f"tuned ({describe_tuned(tuned)})"
    if isinstance(untuned, Mapping):
        setting = describe_setting(untuned)
        return f"as configured{': ' * bool(setting)}{setting} ({untuned.get('why')})"
    return None
