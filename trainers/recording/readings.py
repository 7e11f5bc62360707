"""The readings of a run's yardstick: yardstick.csv, and the object `yardstick` of result.json and ratios.json."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from compressors import unit_state
from trainers.devices.yardstick import Reading

SLOW = 0.9
"""Share of the steps in which the yardstick took at most `slow_s`."""
FAST = 0.1
"""Share of the readings on a host that took at most the time in `by_host`: the shortest of many is short by chance."""


class Readings:
    """All readings of a run's yardstick so far, from all its attempts, the same on all workers.

    Args:
        start: steps before, for which no reading counts.
    """

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._steps: list[int] = []
        self._seconds: list[np.ndarray] = []
        self._hosts: list[tuple[int, list[str]]] = []
        """The hosts of the workers from a reading on, which has this position; they change with an attempt."""
        self._earlier: dict[str, float] = {}
        """The best readings by host from the state of an earlier version, which has the hosts of no reading."""
        self._others_s = self._cores_s = 0.0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, reading: Reading, hosts: Sequence[str]) -> None:
        """Add the reading after `step`.

        Args:
            hosts: of the workers.
        """
        if not self._hosts or self._hosts[-1][1] != list(hosts):
            self._hosts.append((len(self._steps), list(hosts)))
        self._steps.append(step)
        self._seconds.append(reading.seconds)
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
            "slow_s": _compute_quantile(_pair(seconds).max(1), np.diff(self._steps, prepend=self._start), SLOW),
            "cores_of_others": min(max(self._others_s / self._cores_s, 0.0), 1.0) if known else None,
            "readings": len(self._steps),
            "by_host": self._summarise_hosts(seconds),
        }

    def _summarise_hosts(self, seconds: np.ndarray) -> dict[str, float]:
        """Return the time that the share `FAST` of the readings on each host did not exceed.

        Args:
            seconds: of all readings, (readings, workers).
        """
        of_host: dict[str, list[np.ndarray]] = {}
        for (start, hosts), (end, _) in itertools.pairwise([*self._hosts, (len(seconds), [])]):
            for worker, host in enumerate(hosts):
                of_host.setdefault(host, []).append(seconds[start:end, worker])
        found = {host: float(np.quantile(np.concatenate(parts), FAST)) for host, parts in of_host.items()}
        return dict(sorted({**self._earlier, **found}.items()))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "start": self._start,
            "steps": list(self._steps),
            "seconds": torch.from_numpy(np.array(self._seconds)),  # (readings, workers)
            "hosts": [(start, list(hosts)) for start, hosts in self._hosts],
            "earlier": dict(self._earlier),
            "others_s": self._others_s,
            "cores_s": self._cores_s,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        if isinstance(state, Mapping) and "best" in state:  # of an earlier version
            others = {key: value for key, value in state.items() if key != "best"}
            state = {"start": 0, "hosts": [], "earlier": state["best"], **others}
        unit_state.require_keys("yardstick readings", state, self.state_dict())
        self._start, self._steps = state["start"], list(state["steps"])
        self._seconds = [seconds.numpy() for seconds in state["seconds"]]  # a list of tensors in earlier versions
        self._hosts = [(start, list(hosts)) for start, hosts in state["hosts"]]
        self._earlier = dict(state["earlier"])
        self._others_s, self._cores_s = state["others_s"], state["cores_s"]


def _pair(seconds: np.ndarray) -> np.ndarray:
    """Return for the steps before each reading the shorter time of each worker in the readings before and after them.

    What lasts is in both. A time that is in one only was that of a moment, and says little of the seconds between. The
    steps before the first reading have it and the second one.

    Args:
        seconds: of all readings, (readings, workers).
    """
    before = np.concatenate([seconds[1:2] if len(seconds) > 1 else seconds[:1], seconds[:-1]])
    return np.minimum(before, seconds)


def _compute_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the weighted quantile: the smallest value up to which values have at least `share` of all weights."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) >= share * weights.sum()
    return float(values[order][np.argmax(reached)])
