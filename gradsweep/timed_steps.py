"""The number of steps that a throughput was measured over. Standard library only, because all programs need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsweep.text import plural

FEW = 30
"""Of fewer timed steps a throughput says little: it is marked, and not compared."""


def steps(result: Mapping[str, Any], warmup: int | None = None) -> int | None:
    """Return how many steps after the warm-up a result.json's figures cover; 0: they cover the warm-up too.

    Without a warm-up, the first steps are its warm-up. None: it is not known.

    Args:
        warmup: what the config says, for results of earlier versions, which did not count.
    """
    found, every, left_out = (_count(result.get(key)) for key in ("timed_steps", "steps", "warmup_steps"))
    if found is not None:
        return 0 if found == every else found
    if every is None or left_out is None:
        return None
    return after_warmup(every, left_out or warmup or 0)


def after_warmup(steps: int, warmup: int) -> int:
    """Return how many steps are timed; 0: there was no warm-up, or the run is so short that its steps are timed."""
    return max(0, steps - warmup) if warmup else 0


def remark(steps: int | None, every: int | None = None) -> str:
    """Return a remark if a throughput covers few timed steps or the warm-up; empty if all is well or unknown.

    Args:
        steps: those after the warm-up; 0: the warm-up is timed too.
        every: how many steps the run had.
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
