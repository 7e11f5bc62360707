"""The number of steps that a throughput was measured over. Standard library only, because all programs need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsweep.text import plural

FEW = 30
"""Of fewer timed steps a throughput says little: it is marked, and not compared."""


def steps(result: Mapping[str, Any], warmup: int | None = None) -> int | None:
    """Return how many steps after the warm-up a result.json's figures cover; 0: they cover the warm-up too.

    None: it is not known.

    Args:
        warmup: what the config says, for results of earlier versions, which did not count.
    """
    found, every, left_out = (_count(result.get(key)) for key in ("timed_steps", "steps", "warmup_steps"))
    if found is not None or every is None or left_out is None:
        return found
    return after_warmup(every, left_out or warmup or 0)


def after_warmup(steps: int, warmup: int) -> int:
    """Return how many steps are timed; 0: the run is so short that the warm-up steps are timed too."""
    return max(0, steps - warmup)


def remark(steps: int | None) -> str:
    """Return a remark if a throughput covers few timed steps; empty if they are enough or unknown."""
    if steps is None or steps >= FEW:
        return ""
    return f"of {plural(steps, 'timed step')}" if steps else "warm-up included"


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
