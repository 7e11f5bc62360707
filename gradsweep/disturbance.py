"""Decide whether other programs disturbed a run, by its yardstick: the times of a fixed piece of work.

A yardstick is the object of this name in result.json or in a heat of ratios.json (docs/design/run-directory.md).
Standard library only, because all programs need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

SLOWER = 1.10
"""A run is disturbed if its cores were slower than the best of its sweep by more than this factor for more than a tenth
of its steps."""
OTHERS = 0.03
"""A run is disturbed if other processes took more than this share of its cores."""


def find_best(yardsticks: Iterable[Mapping[str, Any] | None]) -> dict[str, float]:
    """Return for each host the shortest time in seconds that any run of a sweep measured with its yardstick."""
    best: dict[str, float] = {}
    for yardstick in yardsticks:
        for host, seconds in _get_readings(yardstick).items():
            best[host] = min(seconds, best.get(host, math.inf))
    return best


def choose_best(yardstick: Mapping[str, Any] | None, best: Mapping[str, float]) -> float | None:
    """Return the shortest time in seconds to compare a run's yardstick with; None if there is none.

    A run waits for its slowest host, so of several hosts the one with the longest of these times counts.

    Args:
        yardstick: of the run.
        best: the sweep's shortest time on each host, by `find_best`.
    """
    return max((best[host] for host in _get_readings(yardstick) if host in best), default=None)


def compute_drift(yardstick: Mapping[str, Any] | None, best_s: float | None) -> float | None:
    """Return the ratio to `best_s` that the yardstick's time did not exceed in nine tenths of the steps.

    None: unknown.
    """
    slow = _get_positive(yardstick, "slow_s")
    return slow / best_s if slow is not None and best_s else None


def get_share_of_others(yardstick: Mapping[str, Any] | None) -> float | None:
    """Return the share of a run's cores that other processes took, from 0 to 1; None: unknown."""
    found = _get_number(yardstick, "cores_of_others")
    return found if found is not None and 0 <= found <= 1 else None


def explain_disturbed(yardstick: Mapping[str, Any] | None, best_s: float | None) -> str | None:
    """Return in words how other programs disturbed a run; None if they did not, or if it is unknown.

    Args:
        yardstick: of the run; None: an earlier version trained it.
        best_s: the sweep's shortest yardstick time on the same host, in seconds (see `choose_best`).
    """
    reasons = []
    drift, others = compute_drift(yardstick, best_s), get_share_of_others(yardstick)
    if drift is not None and drift > SLOWER:
        slower = f"{100 * (drift - 1):.0f} % slower than the best of the sweep"
        reasons.append(f"its cores were {slower} for more than a tenth of its steps")
    if others is not None and others > OTHERS:
        reasons.append(f"other processes took {100 * others:.0f} % of its cores")
    return ", and ".join(reasons) or None


def _get_readings(yardstick: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the run's shortest yardstick time on each host, in seconds, without invalid values."""
    found = yardstick.get("by_host") if isinstance(yardstick, Mapping) else None
    readings = {host: _get_positive(found, host) for host in found} if isinstance(found, Mapping) else {}
    return {host: seconds for host, seconds in readings.items() if seconds is not None}


def _get_positive(values: Mapping[str, Any] | None, key: str) -> float | None:
    found = _get_number(values, key)
    return found if found is not None and 0 < found < math.inf else None


def _get_number(values: Mapping[str, Any] | None, key: str) -> float | None:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if abs(found) < 1e300 else None
