"""Predict how many times as fast a method is as training without compression."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from reports.analysis.table import ReportTable
from reports.scaling.measured.links import Links
from reports.scaling.model.break_even import BASELINE, find_baselines
from reports.scaling.model.fit import CostModel, stack_models
from reports.scaling.model.predict import LEVEL, Prediction, Predictor
from reports.scaling.output.tables import (
    HEADERS,
    INTERVALS,
    NO_ACCURACY,
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
        low, high: the interval; nan where there is none, and where both were measured.
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


def compute_speedups(predictor: Predictor, found: Sequence[Prediction], links: Mapping[str, Links]) -> list[Speedup]:
    """Return the speed-up of each compressing method over the fastest one without compression."""
    compressors = predictor.measurements.compressors
    bases = find_baselines(found, compressors)
    pairs: dict[tuple[str, str, str], _Pair | None] = {}
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
            pairs[names] = _Pair.from_predictor(predictor, *names)
        if not is_measured and (pair := pairs[names]):
            low, high = pair.compute_interval(predictor, one.workers, links[one.network])
            low, high = min(low, times), max(high, times)
        answers.append(Speedup(one.workload, one.method, one.workers, one.network, times, low, high, is_measured))
    return answers


@dataclasses.dataclass(frozen=True)
class _Pair:
    """The cost models that leave out one cell of a method or the baseline, if the other method has a counterpart of
    this cell.

    The counterpart has the same circumstances. `misses` is what each model misses of the logarithm of the two steps'
    ratio.
    """

    method: tuple[str, str]
    base: tuple[str, str]
    of_method: CostModel
    of_base: CostModel
    misses: npt.NDArray[np.float64]

    @classmethod
    def from_predictor(cls, predictor: Predictor, workload: str, method: str, base: str) -> _Pair | None:
        """Return the pair of two methods; None without such a cell or a measured network."""
        names = (workload, method), (workload, base)
        cells = {cell.key: cell for cell in predictor.measurements.cells if cell.is_fair}
        models, misses = [], []
        for held in predictor.check.held:
            here = [cells.get((*name, *held.cell.key[2:])) for name in names]
            one, other = here
            if held.cell in here and one and other and all(name in held.model.methods for name in names):
                said = held.model.predict_cell(other).total / held.model.predict_cell(one).total
                models.append(held.model)
                misses.append(abs(math.log(said / (other.step_s / one.step_s))))
        if not models or not predictor.measurements.networks:
            return None
        return cls(*names, stack_models(models, names[0]), stack_models(models, names[1]), np.array(misses))

    def compute_interval(self, predictor: Predictor, workers: int, links: Links) -> tuple[float, float]:
        """Return the jackknife+ interval of the ratio's logarithm, computed as in `Predictor._compute_interval`."""

        def total(model: CostModel, key: tuple[str, str]) -> npt.NDArray[np.float64]:
            samples = predictor.get_samples(key[0])
            return np.asarray(model.predict_step(key, workers, links, samples, best=predictor.best).total)

        ratios = np.log(total(self.of_base, self.base) / total(self.of_method, self.method))
        low = np.quantile(ratios - self.misses, (1 - LEVEL) / 2)
        high = np.quantile(ratios + self.misses, (1 + LEVEL) / 2)
        return float(np.exp(low)), float(np.exp(high))


def build_table(found: Sequence[Speedup], remarks: Sequence[str]) -> ReportTable:
    def make_figures(one: Speedup) -> Figures:
        record = {
            "times": one.times,
            "times_low": keep_finite(one.low),
            "times_high": keep_finite(one.high),
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
        [SAID, INTERVALS, NO_ACCURACY, *remarks],
    )
