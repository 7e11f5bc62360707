"""Predict steps from the measurements of a model on one machine, by the cost model of `python -m reports scaling`.

The network's part of the model has its usual figures, since nothing was sent. Intervals are those of many draws: each
draw takes rounds at random with replacement (bootstrap), and figures of the network and of the model as uncertain as
SPREADS says. All methods share the draws of network and machine, so the intervals of ratios are narrower.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.advise.measured import Array, Measured, MethodTimes
from reports.scaling.measured.links import PAYLOAD_SHARE, Links
from reports.scaling.measured.traffic import compute_demand
from reports.scaling.model.break_even import BASELINE, FASTEST_BIT_S, SLOWEST_BIT_S, BreakEven, WinMap, find_break_even
from reports.scaling.model.fit import PRIOR, ComputeCost, CostModel, MethodCost
from reports.scaling.model.predict import LEVEL

DRAWS = 200
_POINTS = 61  # bandwidths of a map
_OVERLAPPED = "none, overlap"

SPREADS = {"latency": 0.2, "bandwidth": 0.1, "overhead": 0.4, "compute": 0.05, "codec": 0.1}
"""Standard deviations of the logarithms of factors: of the network's latency and bandwidth, of MPI's own work, of the
computation, and of each method's encoding and decoding in a run relative to here. They are assumed, not fitted."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimated value with the ends of its interval."""

    value: float
    low: float
    high: float


class Forecast:
    """Predicts steps of all measured methods, for workers with cores of their own."""

    def __init__(self, measured: Measured, seed: int = 0) -> None:
        self.measured = measured
        random = np.random.default_rng(seed)
        rounds = random.integers(len(measured.compute), size=(DRAWS, len(measured.compute)))

        def spread(name: str) -> Array:
            return np.exp(random.normal(0.0, SPREADS[name], DRAWS))[:, None]

        self._alpha, self._beta, self._overhead = spread("latency"), spread("bandwidth"), spread("overhead")
        wait = np.abs(random.normal(0.0, PRIOR[-1], DRAWS))[:, None] + PRIOR[-1] / 2
        compute = spread("compute")
        codecs = {one.name: spread("codec") for one in measured.methods}
        self._central = self._build_model(None, 1.0, dict.fromkeys(codecs, 1.0), PRIOR[-1])
        self._drawn = self._build_model(rounds, compute, codecs, wait)

    def _build_model(
        self, rounds: npt.NDArray[Any] | None, compute: Any, codecs: dict[str, Any], wait: Any
    ) -> CostModel:
        """Return the cost model; with `rounds` (draws, rounds), its parameters are (draws, 1)."""

        def middle(times: Array) -> Any:
            return np.median(times) if rounds is None else np.median(times[rounds], axis=1)[:, None]

        measured = self.measured
        step = middle(measured.compute)
        share = middle(measured.backward) / step
        work = ComputeCost(0.0, step * compute / measured.batch, share)
        methods: dict[tuple[str, str], MethodCost] = {}
        for one in measured.methods:
            most = max(one.encode)
            decode, each = _fit_decode(one, middle)
            cost = MethodCost(
                encode=middle(one.encode[most]) * codecs[one.name],
                decode=decode * codecs[one.name],
                decode_each=each * codecs[one.name],
                traffic=one.traffic,
                overlaps=False,
                beside=share,
            )
            methods["", one.name] = cost
            if one.name == BASELINE:
                methods["", _OVERLAPPED] = dataclasses.replace(cost, overlaps=True)
        return CostModel(1.0, (1.0, 1.0, *PRIOR[2:-1], wait), {"": work}, methods)

    @property
    def methods(self) -> list[str]:
        return [one.name for one in self.measured.methods]

    def _compute_totals(self, method: str, workers: int, links: Links, beta: Any, *, drawn: bool) -> Any:
        """Return the seconds of a step for bandwidths `beta`, in s a byte; with `drawn` (draws, bandwidths)."""
        model = self._central
        one = dataclasses.replace(links, beta=beta)
        if drawn:
            model = self._drawn
            figures: dict[str, Any] = {
                "alpha": links.alpha * self._alpha,
                "beta": beta * self._beta,
                "per_message": links.per_message * self._overhead,
                "per_byte": links.per_byte * self._overhead,
            }
            one = dataclasses.replace(links, **figures)
        names = [BASELINE, _OVERLAPPED] if method == BASELINE else [method]
        steps = [model.predict_step(("", name), workers, one, self.measured.batch).total for name in names]
        return np.minimum(steps[0], steps[-1])

    def predict_step(self, method: str, workers: int, links: Links) -> Estimate:
        """Predict the seconds of a step; the baseline has the fastest setting of its exchange."""
        value = float(self._compute_totals(method, workers, links, links.beta, drawn=False))
        return _make_estimate(value, self._compute_totals(method, workers, links, links.beta, drawn=True))

    def predict_times(self, method: str, workers: int, links: Links) -> Estimate:
        """Predict how many times as fast as the baseline a method is."""
        central, drawn = (
            self._compute_totals(BASELINE, workers, links, links.beta, drawn=drawn)
            / self._compute_totals(method, workers, links, links.beta, drawn=drawn)
            for drawn in (False, True)
        )
        return _make_estimate(float(central), drawn)

    def count_sent_bytes(self, method: str, workers: int) -> float:
        """Return the bytes that a worker sends in a step."""
        return compute_demand(self._central.methods["", method].traffic, workers).bytes

    def find_break_even(self, workers: int, links: Links) -> dict[str, BreakEven]:
        """Return for each method the bandwidths at which it is faster than the baseline; the latency stays."""
        rates = np.geomspace(SLOWEST_BIT_S, FASTEST_BIT_S, _POINTS)
        betas = 8 / (rates * PAYLOAD_SHARE)
        names = self.methods
        central = np.array(
            [np.broadcast_to(self._compute_totals(name, workers, links, betas, drawn=False), _POINTS) for name in names]
        )
        base = self._compute_totals(BASELINE, workers, links, betas, drawn=True)
        low, high = np.full((2, *central.shape), np.nan)
        for place, name in enumerate(names):
            ratios = base / self._compute_totals(name, workers, links, betas, drawn=True)
            ends = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            times = central[names.index(BASELINE)] / central[place]
            low[place], high[place] = np.minimum(ends[0], times), np.maximum(ends[1], times)
        shape = (*central.shape, 1)
        parts = central.reshape(shape), low.reshape(shape), high.reshape(shape)
        found = WinMap(rates, [workers], names, *parts, bases=[names.index(BASELINE)])
        return {one.method: one for one in find_break_even(found)}

    def find_winning_workers(self, method: str, counts: Sequence[int], links: Links) -> list[int]:
        """Return the numbers of workers with which a method is certainly faster than the baseline."""
        return [count for count in counts if self.predict_times(method, count, links).low > 1]


def _make_estimate(value: float, drawn: Array) -> Estimate:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def _fit_decode(one: MethodTimes, middle: Any) -> tuple[Any, Any]:
    """Return the seconds to decode: a constant, and the time of each payload."""
    counts = sorted(one.decode)
    ends = [middle(one.decode[count]) for count in counts]
    payloads = [one.traffic.count_payloads(count) for count in counts]
    if payloads[0] == payloads[-1]:
        return ends[-1], 0.0 * ends[-1]
    each = np.maximum(0.0, (ends[-1] - ends[0]) / (payloads[-1] - payloads[0]))
    return np.maximum(0.0, ends[-1] - payloads[-1] * each), each
