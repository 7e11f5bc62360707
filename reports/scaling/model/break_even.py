"""Draw conclusions from predictions: which method wins where, when compression pays, what would have to be faster.

All of them are about the time of a step, not about the accuracy of a method.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.scaling.measured.links import PAYLOAD_SHARE, Links
from reports.scaling.model.pairs import Pair
from reports.scaling.model.predict import Prediction, Predictor

BASELINE = "none"
SLOWEST_BIT_S, FASTEST_BIT_S = 1e6, 1e12

Key = tuple[str, str, int]


def find_winners(predictions: Sequence[Prediction]) -> dict[Key, Prediction]:
    """Return the prediction of the fastest method, by workload, network and workers."""
    found: dict[Key, Prediction] = {}
    for one in predictions:
        key = one.workload, one.network, one.workers
        if key not in found or one.step.total < found[key].step.total:
            found[key] = one
    return found


def find_baselines(predictions: Sequence[Prediction], compressors: Mapping[str, str]) -> dict[Key, Prediction]:
    """Return the fastest prediction without compression, by workload, network and workers."""
    return find_winners([one for one in predictions if compressors[one.method] == BASELINE])


@dataclasses.dataclass(frozen=True)
class WinMap:
    """The fastest methods by bandwidth and number of workers.

    Attributes:
        bandwidths: bit/s, as links are sold, ascending.
        workers: numbers of workers, ascending.
        methods: all methods, also those that win nowhere.
        steps: step times in s, (methods, bandwidths, workers).
        low, high: the interval of each method's speed-up over the fastest baseline, of the same shape; nan without one.
        bases: the positions of the baselines in `methods`.
    """

    bandwidths: npt.NDArray[np.float64]
    workers: Sequence[int]
    methods: Sequence[str]
    steps: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    bases: Sequence[int]

    @property
    def winner(self) -> npt.NDArray[np.intp]:
        """(bandwidths, workers): the position of the fastest method in `methods`."""
        return self.steps.argmin(axis=0)

    @property
    def is_close(self) -> npt.NDArray[np.bool_]:
        """Whether it is too close to tell which method is fastest, (bandwidths, workers).

        The interval of its speed-up then reaches down to that of another method, or to 1, the speed-up of the baseline.
        """
        low, high = self.low.copy(), self.high.copy()
        bases = list(self.bases)
        low[bases] = high[bases] = self.steps[bases].min(axis=0) / self.steps[bases] if bases else np.nan
        others = np.where(np.isnan(high), -np.inf, high)
        np.put_along_axis(others, self.winner[None], -np.inf, axis=0)
        return others.max(axis=0) >= self._take_winner(low)

    @property
    def has_no_interval(self) -> npt.NDArray[np.bool_]:
        """Whether the speed-up of the fastest method has no interval, (bandwidths, workers), so that it may be no lead.

        If the fastest method is the baseline, no other method has an interval.
        """
        unknown = np.isnan(self.low)
        return np.where(self._is_baseline, unknown.all(axis=0), self._take_winner(unknown))

    @property
    def _is_baseline(self) -> npt.NDArray[np.bool_]:
        return np.isin(self.winner, list(self.bases))

    def _take_winner(self, values: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return np.take_along_axis(values, self.winner[None], axis=0)[0]


def compute_win_map(
    predictor: Predictor, workload: str, workers: Sequence[int], links: Links, points: int = 121
) -> WinMap:
    """Predict all methods at bandwidths from SLOWEST_BIT_S to FASTEST_BIT_S; `links` gives all but the bandwidth."""
    rates = np.geomspace(SLOWEST_BIT_S, FASTEST_BIT_S, points)
    betas = 8 / (rates * PAYLOAD_SHARE)
    methods = predictor.measurements.list_methods(workload)
    steps = np.empty((len(methods), points, len(workers)))
    for place, method in enumerate(methods):
        for column, count in enumerate(workers):
            steps[place, :, column] = _compute_totals(predictor, workload, method, count, links, betas)
    low, high = np.full((2, *steps.shape), np.nan)
    compressors = predictor.measurements.compressors
    bases = [place for place, method in enumerate(methods) if compressors[method] == BASELINE]
    for base in bases:
        is_fastest = steps[base] == steps[bases].min(axis=0)
        for place, method in enumerate(methods):
            pair = None if place in bases else Pair.from_predictor(predictor, workload, method, methods[base])
            for column, count in enumerate(workers):
                here = is_fastest[:, column]
                if pair is not None and here.any():
                    ends = _compute_ends(predictor, pair, count, links, betas[here])
                    times = steps[base, here, column] / steps[place, here, column]
                    low[place, here, column] = np.minimum(ends[0], times)
                    high[place, here, column] = np.maximum(ends[1], times)
    return WinMap(rates, workers, methods, steps, low, high, bases)


def _compute_totals(
    predictor: Predictor, workload: str, method: str, workers: int, links: Links, betas: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    def predict(beta: Any) -> Any:
        one = dataclasses.replace(links, beta=beta)
        return predictor.predict_step(workload, method, workers, one).total

    if predictor.best:  # the best algorithm depends on the bandwidth
        return np.array([predict(float(beta)) for beta in betas])
    return np.broadcast_to(np.asarray(predict(betas)), betas.shape)


def _compute_ends(
    predictor: Predictor, pair: Pair, workers: int, links: Links, betas: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return both ends of the interval of a speed-up at each of these bandwidths, (2, points)."""

    def compute(beta: Any) -> Any:
        return pair.compute_interval(predictor, workers, dataclasses.replace(links, beta=beta))

    if predictor.best:
        return np.array([compute(float(beta)) for beta in betas]).T
    return np.array([np.broadcast_to(ends, betas.shape) for ends in compute(betas[:, None])])


@dataclasses.dataclass(frozen=True)
class BreakEven:
    """The ranges of bandwidth in bit/s in which `method` beats the baseline, ascending.

    A range from 0 begins at the slowest bandwidth of the map; a range to inf ends at its fastest. There may be several:
    a method with fewer messages and more bytes pays on fast networks only. In the ranges `close`, which `wins`
    excludes, the interval of the speed-up contains 1. In the ranges `unknown` the method is predicted to be faster, but
    the prediction has no interval.
    """

    workload: str
    method: str
    workers: int
    wins: tuple[tuple[float, float], ...]
    close: tuple[tuple[float, float], ...] = ()
    unknown: tuple[tuple[float, float], ...] = ()


def find_break_even(found: WinMap, workload: str = "") -> list[BreakEven]:
    """Return the break-even ranges of each method and number of workers; none if the baseline was not predicted."""
    if not found.bases:
        return []
    base = found.steps[list(found.bases)].min(axis=0)
    rates = np.log(found.bandwidths)
    answers = []
    for place, method in enumerate(found.methods):
        if place in found.bases:
            continue
        for column, count in enumerate(found.workers):
            gain = np.log(base[:, column] / found.steps[place, :, column])
            low, high = (np.log(ends[place, :, column]) for ends in (found.low, found.high))
            unknown = np.where(np.isnan(low), gain, np.nan)
            ranges = (_find_wins(values, rates) for values in (low, np.minimum(high, -low), unknown))
            answers.append(BreakEven(workload, method, count, *ranges))
    return answers


def _find_wins(gain: npt.NDArray[np.float64], rates: npt.NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    """Return the ranges in which `gain` is above 0, interpolated linearly over the logarithms of bandwidths.

    NaN is not above 0; a range beside it ends at the last known rate.
    """
    turns = np.flatnonzero(np.diff(gain > 0))
    before, after = gain[turns], gain[turns + 1]
    shares = np.where(np.isnan(before), 1.0, np.where(np.isnan(after), 0.0, before / (before - after)))
    ends = np.exp(rates[turns] + shares * (rates[turns + 1] - rates[turns])).tolist()
    ends = [*([0.0] if gain[0] > 0 else []), *ends, *([math.inf] if gain[-1] > 0 else [])]
    return tuple(zip(ends[::2], ends[1::2], strict=True))


@dataclasses.dataclass(frozen=True)
class Needed:
    """The factors by which parts of `method` would have to be faster for `method` to win; inf: no factor suffices.

    Attributes:
        codec: the factor for encoding and decoding together.
        payload: the factor by which its messages would have to be shorter.
        both: the common factor if both change.
    """

    prediction: Prediction
    winner: Prediction
    codec: float
    payload: float
    both: float


def find_needed(predictor: Predictor, predictions: Sequence[Prediction], links: Mapping[str, Links]) -> list[Needed]:
    """Return the needed factors for each prediction of a compressing method that does not win."""
    first = find_winners(predictions)
    found = []
    for one in predictions:
        best = first[one.workload, one.network, one.workers]
        if best.method == one.method or predictor.measurements.compressors[one.method] == BASELINE:
            continue

        def factor(one: Prediction = one, best: Prediction = best, **changed: npt.NDArray[np.float64]) -> float:
            step = predictor.predict_step(one.workload, one.method, one.workers, links[one.network])
            # A measured step differs from the model's: the factor is relative to the measured one.
            goal = step.total * best.step.total / one.step.total
            step = predictor.predict_step(one.workload, one.method, one.workers, links[one.network], **changed)
            return _find_least_factor(step.total, goal)

        shares = 1 / _FACTORS
        both = factor(codec=shares, payload=shares)
        found.append(Needed(one, best, factor(codec=shares), factor(payload=shares), both))
    return found


_FACTORS = np.geomspace(1.0, 1e4, 401)
"""The factors that are tried; a larger one counts as impossible."""


def _find_least_factor(totals: npt.ArrayLike, goal: float) -> float:
    """Return the smallest of _FACTORS whose entry in `totals` is at most `goal`, interpolated linearly."""
    totals = np.broadcast_to(np.asarray(totals), _FACTORS.shape)
    place = int(np.argmax(totals <= goal))
    if totals[place] > goal:
        return math.inf
    if place == 0:
        return 1.0
    share = (totals[place - 1] - goal) / (totals[place - 1] - totals[place])
    return float(_FACTORS[place - 1] + share * (_FACTORS[place] - _FACTORS[place - 1]))
