"""The confidence interval of the mean of correlated times, by the method of batch means in constant memory.

Consecutive times form batches of equal size. The means of long batches hardly depend on each other, so Student's
interval over the batches holds: A. M. Law, W. D. Kelton, Simulation Modeling and Analysis, section 9.5.3. The number of
batches is 10 to 20: B. Schmeiser, Batch size effects in the analysis of simulation output, Operations Research 30
(1982), finds that more than 30 add little and that the interval is wide with fewer than 10.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from compressors import unit_state

MOST_SUMS = 40
"""Batches that are kept. When there are as many, neighbours are merged in pairs."""
MOST_BATCHES = 20
"""Batches of an interval, at most."""
LEAST_BATCHES = 8
LEAST_VALUES = 30
_T = (2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930)
"""The .975 quantiles of Student's t for 7 to 19 degrees of freedom, to 5 digits. To load scipy for them takes long."""


class BatchMeans:
    """Computes the confidence interval of the mean of a series of values from the sums of batches."""

    def __init__(self) -> None:
        self._size = 1
        self._sums: list[float] = []
        self._open_sum, self._open_count = 0.0, 0

    def add(self, value: float) -> None:
        """Add the next value of the series."""
        self._open_sum += value
        self._open_count += 1
        if self._open_count == self._size:
            self._sums.append(self._open_sum)
            self._open_sum, self._open_count = 0.0, 0
            if len(self._sums) == MOST_SUMS:
                self._sums, self._size = _merge_pairs(self._sums), 2 * self._size

    def compute_margin(self) -> float | None:
        """Return half the width of the 95 % interval of the mean; None if there are too few values or batches."""
        sums, size = self._sums, self._size
        if len(sums) > MOST_BATCHES:
            sums, size = _merge_pairs(sums), 2 * size
        if len(sums) < LEAST_BATCHES or len(self._sums) * self._size + self._open_count < LEAST_VALUES:
            return None
        deviation = statistics.stdev(each / size for each in sums)
        return _T[len(sums) - LEAST_BATCHES] * deviation / math.sqrt(len(sums))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        state = {"size": self._size, "sums": list(self._sums)}
        return {**state, "open_sum": self._open_sum, "open_count": self._open_count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        unit_state.require_keys("batch means", state, self.state_dict())
        self._size, self._sums = state["size"], list(state["sums"])
        self._open_sum, self._open_count = state["open_sum"], state["open_count"]


def _merge_pairs(sums: list[float]) -> list[float]:
    """Return the sums of pairs of neighbouring batches; the last of an odd number of batches is dropped."""
    return [first + second for first, second in zip(sums[::2], sums[1::2], strict=False)]
