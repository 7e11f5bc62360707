"""The confidence interval of the mean of correlated times, by the method of batch means in constant memory.

Consecutive times form batches of equal size. The means of long batches hardly depend on each other, so Student's
interval over the batches holds: A. M. Law, W. D. Kelton, Simulation Modeling and Analysis, section 9.5.3. The number of
batches is 10 to 14, so that they are as long as possible: B. Schmeiser, Batch size effects in the analysis of
simulation output, Operations Research 30 (1982), finds that more than 30 batches add little and that fewer than 10 make
the interval wide.

A slow phase of the machine may be longer than a batch, in particular of a short run. Then the means of neighbouring
batches are correlated, and the interval is too narrow. It is widened by the correlation that the batches show, as if
they were an autoregressive process of first order: A. Tafazzoli, J. R. Wilson, Skart: a skewness- and
autoregression-adjusted batch-means procedure for simulation analysis, IIE Transactions 43 (2011).
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

from compressors import unit_state

MOST_SUMS = 40
"""Batches that are kept. When there are as many, neighbours are merged in pairs."""
LEAST_BATCHES, MOST_BATCHES = 10, 14
"""Batches of an interval."""
LEAST_VALUES = 30
MOST_CORRELATION = 0.9
"""The largest correlation of batches that widens an interval: with it, to 4.4 times its width."""
_T = (2.2622, 2.2281, 2.2010, 2.1788, 2.1604)
"""The .975 quantiles of Student's t for 9 to 13 degrees of freedom, to 5 digits. To load scipy for them takes long."""


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
                self._sums, self._size = _merge(self._sums, 2), 2 * self._size

    def compute_margin(self) -> float | None:
        """Return half the width of the 95 % interval of the mean; None if there are too few values or batches."""
        if len(self._sums) * self._size + self._open_count < LEAST_VALUES:
            return None
        merged = len(self._sums) // LEAST_BATCHES
        sums, size = _merge(self._sums, merged), merged * self._size
        means = [each / size for each in sums]
        correlation = _estimate_correlation(means)
        widened = math.sqrt((1 + correlation) / (1 - correlation))
        return _T[len(means) - LEAST_BATCHES] * widened * statistics.stdev(means) / math.sqrt(len(means))

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


def _merge(sums: list[float], count: int) -> list[float]:
    """Return the sums of `count` neighbouring batches each; what is left over at the end is dropped."""
    return [sum(sums[start : start + count]) for start in range(0, len(sums) - count + 1, count)]


def _estimate_correlation(means: list[float]) -> float:
    """Return the correlation of neighbouring batches, from 0 to MOST_CORRELATION.

    The estimate from few batches is too small by about (1 + 3 r) / batches (M. G. Kendall, Note on bias in the
    estimation of autocorrelation, Biometrika 41, 1954), which is added.
    """
    middle = statistics.fmean(means)
    gaps = [each - middle for each in means]
    total = sum(gap * gap for gap in gaps)
    if not total:
        return 0.0
    found = sum(first * second for first, second in itertools.pairwise(gaps)) / total
    return min(max(found + (1 + 3 * found) / len(means), 0.0), MOST_CORRELATION)
