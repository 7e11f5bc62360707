"""Predict steps of methods with other networks and more workers, with intervals.

Each worker has cores and a host of its own, and weak scaling is assumed: every worker has as many samples as before,
whatever their number. The efficiency is the global samples/s over W times those of one worker alone, who neither
encodes nor communicates. Where a step was measured under the same circumstances, the measurement is returned.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.scaling.measured.cell import MeasuredCell, RacedRatio
from reports.scaling.measured.links import Links
from reports.scaling.measured.measurements import Measurements
from reports.scaling.model.cross_validation import CrossValidation
from reports.scaling.model.fit import CostModel, StepTimes, stack_models

LEVEL = 0.9
"""The level of the intervals."""
_SAME_SAMPLES = 0.05
"""Relative difference up to which steps have the same samples: the last batch of an epoch may be shorter."""


def is_alone(cell: MeasuredCell) -> bool:
    """Tell whether a cell was measured under a prediction's conditions: workers with their own cores and hosts,
    limited by the network."""
    return cell.is_fair and cell.load <= 1 and cell.hosts == cell.workers


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The prediction of a step of `method` with `workers` on `network`; times in s.

    Attributes:
        step: the predicted step, or the measured one.
        low, high: the interval of a predicted step's time; nan if there is none, or the step was measured.
        alone: the step time of a single worker that neither encodes nor communicates.
        is_measured: a run had exactly these conditions: this network, this many workers and samples, and for each
            worker cores and a host of its own.
        raced: the ratio that a race has measured; None without a race.
    """

    workload: str
    method: str
    workers: int
    network: str
    step: StepTimes
    low: float
    high: float
    alone: float
    is_measured: bool
    raced: RacedRatio | None = None

    @property
    def iterations_per_second(self) -> float:
        return 1 / self.step.total

    @property
    def efficiency(self) -> float:
        return self.alone / self.step.total


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Predicts steps by the cost model of all cells, with intervals by the models that each leave out one cell."""

    measurements: Measurements
    model: CostModel
    check: CrossValidation
    samples: float | None = None
    best: bool = False

    @functools.cached_property
    def _samples(self) -> dict[str, float]:
        found = {}
        for workload in self.measurements.workloads:
            cells = [cell for cell in self.measurements.cells if cell.workload == workload]
            fewest = min(cell.workers for cell in cells)
            found[workload] = statistics.median_low(cell.samples for cell in cells if cell.workers == fewest)
        return found

    def get_samples(self, workload: str) -> float:
        """Return the samples of a worker in a step: the given number, else that of most runs with fewest workers."""
        return self._samples[workload] if self.samples is None else self.samples

    def predict_step(self, workload: str, method: str, workers: int, links: Links, **changed: Any) -> StepTimes:
        """Predict a step; `changed` sets `codec` or `payload` of `CostModel.predict_step`."""
        key = workload, method
        return self.model.predict_step(key, workers, links, self.get_samples(workload), best=self.best, **changed)

    def predict_alone(self, workload: str) -> float:
        """Return the step time in s of a single worker that neither encodes nor communicates."""
        work = self.model.works[workload]
        return work.fixed + work.each * self.get_samples(workload)

    def predict(self, networks: Sequence[Links], workers: Sequence[int]) -> list[Prediction]:
        """Predict all methods on each of the networks with each number of workers."""
        found = []
        for workload in self.measurements.workloads:
            alone = self.predict_alone(workload)
            for links in networks:
                for method in self.measurements.list_methods(workload):
                    for count in workers:
                        names = workload, method, count, links.name
                        cell = self._find_measured(workload, method, count, links)
                        if cell is not None:
                            parts = cell.compute_s, cell.encode_s, cell.communicate_s, cell.decode_s
                            ends = math.nan, math.nan
                            found.append(Prediction(*names, StepTimes(*parts), *ends, alone, True, cell.raced))
                            continue
                        step = self.predict_step(workload, method, count, links)
                        ends = self._compute_interval((workload, method), count, links, float(step.total))
                        found.append(Prediction(*names, step, *ends, alone, False))
        return found

    def _find_measured(self, workload: str, method: str, workers: int, links: Links) -> MeasuredCell | None:
        """Return the cell that was measured under exactly these conditions; None without such a cell."""
        if self.best or links not in self.measurements.networks:
            return None
        for cell in self.measurements.select_cells(workload, method):
            is_it = (cell.network, cell.workers) == (links.name, workers)
            if is_it and is_alone(cell) and abs(cell.samples / self.get_samples(workload) - 1) <= _SAME_SAMPLES:
                return cell
        return None

    @functools.cached_property
    def _without(self) -> dict[tuple[str, str], tuple[CostModel, npt.NDArray[np.float64]]]:
        """The cost models of each method that leave out one cell, with their errors |log| for that cell."""
        found = {}
        for key in self.model.methods:
            held = [one for one in self.check.held if key in one.model.methods]
            misses = np.array([abs(np.log(one.predicted.total / one.cell.step_s)) for one in held])
            if held:
                found[key] = stack_models([one.model for one in held], key), misses
        return found

    def _compute_interval(self, key: tuple[str, str], workers: int, links: Links, step: float) -> tuple[float, float]:
        """Return the jackknife+ interval of a step's time (Barber, Candes, Ramdas and Tibshirani, 2021).

        Each model that leaves out one cell predicts the step, and its prediction is moved up and down by its error for
        that cell. So the interval widens where these models disagree, far from what was measured. It is nan if no
        network was measured: then none of these models knows how long a message takes.
        """
        if key not in self._without or not self.measurements.networks:
            return math.nan, math.nan
        models, misses = self._without[key]
        totals = np.log(models.predict_step(key, workers, links, self.get_samples(key[0]), best=self.best).total)
        low, high = np.quantile(totals - misses, (1 - LEVEL) / 2), np.quantile(totals + misses, (1 + LEVEL) / 2)
        return min(step, float(np.exp(low))), max(step, float(np.exp(high)))
