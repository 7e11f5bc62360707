"""The number of steps that a throughput was measured over. Standard library only, because all programs need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsweep.text import plural

FEW = 30
"""Of fewer timed steps a throughput says little: it is marked, and not compared."""


def steps(result: Mapping[str, Any], warmup: int | None = None) -> int | None:
    """Return over how many steps after the warm-up a throughput was measured; 0: it includes the warm-up.

    It always includes the warm-up if the config has no warm-up steps: then the first steps are slower all the same.

    Args:
        result: the content of result.json.
        warmup: the config's warm-up steps, for results of earlier versions, which do not have the number.

    Returns:
        None if the number is not known.
    """
    found, every, left_out = (_count(result.get(key)) for key in ("timed_steps", "steps", "warmup_steps"))
    if found is not None:
        return 0 if found == every else found
    if every is None or left_out is None:
        return None
    return after_warmup(every, left_out or warmup or 0)


def after_warmup(steps: int, warmup: int) -> int:
    """Return how many of `steps` come after the warm-up; 0 also if there is no warm-up: see `steps`."""
    return max(0, steps - warmup) if warmup else 0


def remark(steps: int | None, every: int | None = None) -> str:
    """Return a remark if a throughput covers few steps or includes the warm-up; empty if neither, or if unknown.

    Args:
        steps: the timed steps after the warm-up; 0: the warm-up is timed, too.
        every: all steps of the run.
    """
    if steps is None or steps >= FEW:
        return ""
    if steps:
        return f"of {plural(steps, 'timed step')}"
    return "warm-up included" if every is None else f"of all {plural(every, 'step')}, warm-up included"


def remark_on(result: Mapping[str, Any], warmup: int | None = None) -> str:
    """Return the remark on the throughput of a result.json; `warmup` as for `steps`."""
    return remark(steps(result, warmup), _count(result.get("steps")))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
