"""The readings of a run's yardstick: yardstick.csv, and the object `yardstick` of result.json and ratios.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from compressors import unit_state
from trainers.devices.yardstick import Reading

SLOW = 0.9
"""Share of the steps in which the yardstick took at most `slow_s`."""


class Readings:
    """All readings of a run's yardstick so far, from all its attempts, the same on all workers.

    Args:
        start: steps before, for which no reading counts.
    """

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._steps: list[int] = []
        self._seconds: list[np.ndarray] = []
        self._best: dict[str, float] = {}
        self._others_s = self._cores_s = 0.0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, reading: Reading, hosts: Sequence[str]) -> None:
        """Add the reading after `step`, which counts for all steps since the previous reading.

        Args:
            hosts: of the workers.
        """
        self._steps.append(step)
        self._seconds.append(reading.seconds)
        for host, seconds in zip(hosts, reading.seconds.tolist(), strict=True):
            self._best[host] = min(seconds, self._best.get(host, math.inf))
        self._others_s += reading.others_s
        self._cores_s += reading.cores_s

    def summarise(self) -> dict[str, Any] | None:
        """Return the figures of all readings for result.json (docs/design/run-directory.md); None without readings."""
        if not self._steps:
            return None
        seconds = np.stack(self._seconds)
        low, median, high = np.quantile(seconds, [0.1, 0.5, SLOW]).tolist()
        known = self._cores_s > 0 and math.isfinite(self._others_s)
        return {
            "best_s": float(seconds.min()),
            "median_s": median,
            "spread": (high - low) / median,
            "slow_s": _compute_quantile(seconds.max(1), np.diff(self._steps, prepend=self._start), SLOW),
            "cores_of_others": min(max(self._others_s / self._cores_s, 0.0), 1.0) if known else None,
            "readings": len(self._steps),
            "by_host": dict(sorted(self._best.items())),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "start": self._start,
            "steps": list(self._steps),
            "seconds": torch.from_numpy(np.array(self._seconds)),  # (readings, workers)
            "best": dict(self._best),
            "others_s": self._others_s,
            "cores_s": self._cores_s,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        state = {"start": 0, **state} if isinstance(state, Mapping) else state  # earlier versions have none
        unit_state.require_keys("yardstick readings", state, self.state_dict())
        self._start, self._steps = state["start"], list(state["steps"])
        self._seconds = [seconds.numpy() for seconds in state["seconds"]]  # a list of tensors in earlier versions
        self._best = dict(state["best"])
        self._others_s, self._cores_s = state["others_s"], state["cores_s"]


def _compute_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the weighted quantile: the smallest value up to which values have at least `share` of all weights."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) >= share * weights.sum()
    return float(values[order][np.argmax(reached)])
