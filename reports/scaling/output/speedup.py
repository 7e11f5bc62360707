"""Predict the speed-up of methods over training without compression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from reports.analysis.table import ReportTable
from reports.scaling.measured.cell import RACED_LEVEL
from reports.scaling.measured.links import Links
from reports.scaling.model.break_even import BASELINE, Key, find_baselines, find_winners
from reports.scaling.model.pairs import Pair, is_close
from reports.scaling.model.predict import LEVEL, Prediction, Predictor
from reports.scaling.output.tables import (
    HEADERS,
    INTERVALS,
    NO_ACCURACY,
    RACED_INTERVALS,
    SAID,
    Figures,
    build_table_by_workers,
    format_predicted,
    format_times,
    keep_finite,
)


@dataclasses.dataclass(frozen=True)
class Speedup:
    """The time of a step without compression divided by that of `method`: above 1, compression pays.

    Attributes:
        low, high: the interval of the prediction, or of a race's measurement; nan if there is none.
        is_measured: both steps were measured.
    """

    workload: str
    method: str
    workers: int
    network: str
    times: float
    low: float
    high: float
    is_measured: bool

    @property
    def is_close(self) -> bool:
        """Whether the interval contains 1, so that it is uncertain which of both is faster."""
        return is_close(self.low, self.high)

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)


def find_rivals(
    found: Sequence[Speedup], predictions: Sequence[Prediction], compressors: Mapping[str, str]
) -> dict[Key, Speedup]:
    """Return the closest rival of the fastest method, by workload, network and workers, if it is uncertain which is
    faster.

    If the fastest method compresses, it is its own rival of `none` if the interval of its speed-up contains 1, or if
    there is none. If it does not compress, the rival is the fastest method whose interval contains 1, or if no method
    has an interval the fastest of all.
    """
    winners = find_winners(predictions)
    by_key: dict[Key, list[Speedup]] = {}
    for one in found:
        by_key.setdefault((one.workload, one.network, one.workers), []).append(one)
    rivals: dict[Key, Speedup] = {}
    for key, speedups in by_key.items():
        best = winners[key].method
        if compressors[best] == BASELINE:
            are_unknown = not any(one.has_interval for one in speedups)
            uncertain = [one for one in speedups if one.is_close or are_unknown]
        else:
            uncertain = [one for one in speedups if one.method == best and (one.is_close or not one.has_interval)]
        if uncertain:
            rivals[key] = max(uncertain, key=lambda one: one.times)
    return rivals


def compute_speedups(predictor: Predictor, found: Sequence[Prediction], links: Mapping[str, Links]) -> list[Speedup]:
    """Return the speed-up of each compressing method over the fastest method without compression."""
    compressors = predictor.measurements.compressors
    bases = find_baselines(found, compressors)
    pairs: dict[tuple[str, str, str], Pair | None] = {}
    answers = []
    for one in found:
        base = bases.get((one.workload, one.network, one.workers))
        if base is None or compressors[one.method] == BASELINE:
            continue
        times = float(base.step.total / one.step.total)
        is_measured = one.is_measured and base.is_measured
        low = high = math.nan
        names = one.workload, one.method, base.method
        if names not in pairs:
            pairs[names] = Pair.from_predictor(predictor, *names)
        if is_measured and one.raced is not None and one.raced.base == base.method:
            low, high = one.raced.low, one.raced.high
        elif not is_measured and (pair := pairs[names]):
            ends = pair.compute_interval(predictor, one.workers, links[one.network])
            low, high = min(float(ends[0]), times), max(float(ends[1]), times)
        answers.append(Speedup(one.workload, one.method, one.workers, one.network, times, low, high, is_measured))
    return answers


def build_table(found: Sequence[Speedup], remarks: Sequence[str]) -> ReportTable:
    def make_figures(one: Speedup) -> Figures:
        record = {
            "times": one.times,
            "times_low": keep_finite(one.low),
            "times_high": keep_finite(one.high),
            "interval_level": (RACED_LEVEL if one.is_measured else LEVEL) if one.has_interval else None,
            "extrapolated": not one.is_measured,
        }
        text = format_predicted(one.is_measured, format_times(one.times), one.low, one.high)
        return (one.workload, one.network, one.method), one.workers, one.times, text, record

    return build_table_by_workers(
        "scaling_speedup",
        f"Times as fast as compressor={BASELINE}, by workers",
        "x",
        HEADERS,
        map(make_figures, found),
        [SAID, f"{INTERVALS}; {RACED_INTERVALS}", NO_ACCURACY, *remarks],
    )
