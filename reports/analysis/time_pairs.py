"""Pair each run of a cell with the run of its baseline that was closest in time.

Other programs load a machine differently from minute to minute: two runs made one after the other are more comparable
than two runs with the same seed, an hour apart.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
import pandas as pd

from reports.analysis.grid import SEED
from reports.reading.text import format_settings

_OTHER_SEED_S = 1e-3  # what another seed counts as, so that it decides only where times do not


class TimePairs:
    """The pairs of a table's runs with runs of their baselines.

    Args:
        runs: rows of `Report.runs`.
        match: the columns in which both runs of a pair are equal.
        is_baseline: for each run, whether other runs are compared with it.
        numbers: for each run, the number of its cell.
    """

    def __init__(self, runs: pd.DataFrame, match: Sequence[str], is_baseline: pd.Series, numbers: np.ndarray) -> None:
        keys = list(zip(*(format_settings(runs[key]) for key in match), strict=True)) or [()] * len(runs)
        seeds = format_settings(runs[SEED]) if SEED in runs else [""] * len(runs)
        known: dict[str, int] = {}
        self._seeds = np.array([known.setdefault(seed, len(known)) for seed in seeds], dtype=int)
        self._times, self._numbers = find_middles(runs), numbers
        self._members: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        self._baselines: dict[tuple[str, ...], list[int]] = {}
        places = np.flatnonzero(is_baseline.to_numpy(bool)).tolist()
        counts = collections.Counter((keys[place], seeds[place]) for place in places)
        for place in places:
            if counts[keys[place], seeds[place]] == 1:  # of several with one seed, to take one would be a guess
                self._baselines.setdefault(keys[place], []).append(place)
        for place, (number, key) in enumerate(zip(numbers.tolist(), keys, strict=True)):
            if key in self._baselines:
                self._members.setdefault((number, key), []).append(place)
        self._found: dict[bytes, list[np.ndarray]] = {}

    def find(self, is_tested: np.ndarray) -> list[np.ndarray]:
        """Return for each cell its pairs of tested runs, (pairs, 2): the positions of a run and of its baseline."""
        which = is_tested.tobytes()
        if which not in self._found:
            parts: list[list[np.ndarray]] = [[] for _ in range(int(self._numbers.max(initial=-1)) + 1)]
            for (number, key), members in self._members.items():
                parts[number].append(self._pair(number, members, self._baselines[key], is_tested))
            self._found[which] = [np.concatenate([np.empty((0, 2), int), *each]) for each in parts]
        return self._found[which]

    def _pair(self, number: int, members: list[int], baselines: list[int], is_tested: np.ndarray) -> np.ndarray:
        """Return the pairs of a cell's runs with baselines of other cells."""
        own = np.array([place for place in members if is_tested[place]], dtype=int)
        base = [place for place in baselines if is_tested[place] and self._numbers[place] != number]
        others = np.array(base, dtype=int)
        pairs = pair_in_time(self._times[own], self._seeds[own], self._times[others], self._seeds[others])
        return np.column_stack([own[pairs[:, 0]], others[pairs[:, 1]]])


def find_middles(runs: pd.DataFrame) -> np.ndarray:
    """Return the time halfway between start and end of each run, in seconds; NaN if it has no start or end."""
    ends = [runs[name].astype("int64").where(runs[name].notna()).to_numpy("float64") for name in ("started", "ended")]
    return np.asarray((ends[0] + ends[1]) / 2e6)


def pair_in_time(
    times: np.ndarray, seeds: np.ndarray, baseline_times: np.ndarray, baseline_seeds: np.ndarray
) -> np.ndarray:
    """Pair the runs of two groups so that the sum of time differences is smallest; return (pairs, 2): positions in each
    group.

    A run is in one pair at most, since tests take pairs as independent. If times are unknown or too far apart to
    decide, as between sweeps of different days, runs with equal seeds are paired.

    Args:
        times, baseline_times: as from `find_middles`.
        seeds, baseline_seeds: a number for each seed, the same in both groups.
    """
    is_other = seeds[:, None] != baseline_seeds[None, :]
    gaps = np.abs(times[:, None] - baseline_times[None, :])
    if not np.isfinite(gaps).all():
        return np.argwhere(~is_other)
    costs = gaps + _OTHER_SEED_S * is_other
    if min(costs.shape) < 2:  # without scipy, which takes most of a second to load
        return np.argwhere(np.arange(costs.size).reshape(costs.shape) == (costs.argmin() if costs.size else 0))
    from scipy.optimize import linear_sum_assignment

    return np.column_stack(linear_sum_assignment(costs))
