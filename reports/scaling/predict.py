"""Steps of methods with other networks and more workers, each worker with cores and a host of its own, with intervals.

Weak scaling: every worker has as many samples as before, whatever their number. The efficiency is the global samples/s
over W times those of one worker alone, who neither encodes nor communicates.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reports.scaling.check import Check
from reports.scaling.fit import Model, Step, stack
from reports.scaling.networks import Links
from reports.scaling.parts import Parts

LEVEL = 0.9
"""Of the intervals."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One step of `method` with `workers` on `network`; times in s.

    Attributes:
        low, high: the interval of the step's time.
        alone: what a worker alone takes.
        is_measured: the method was run on this network with no more workers than this and no fewer; else this is
            extrapolated.
    """

    workload: str
    method: str
    workers: int
    network: str
    step: Step
    low: float
    high: float
    alone: float
    is_measured: bool

    @property
    def iterations_per_second(self) -> float:
        return 1 / self.step.total

    @property
    def efficiency(self) -> float:
        return self.alone / self.step.total


@dataclasses.dataclass(frozen=True)
class Predictor:
    """Predicts by the model of all cells; its intervals come from those that were fitted without one of them."""

    parts: Parts
    model: Model
    check: Check
    samples: float | None = None
    best: bool = False

    @functools.cached_property
    def _samples(self) -> dict[str, float]:
        found = {}
        for workload in self.parts.workloads:
            cells = [cell for cell in self.parts.cells if cell.workload == workload]
            fewest = min(cell.workers for cell in cells)
            found[workload] = statistics.median(cell.samples for cell in cells if cell.workers == fewest)
        return found

    def samples_of(self, workload: str) -> float:
        """A worker's, in a step: as asked, else as the runs with the fewest workers had them."""
        return self._samples[workload] if self.samples is None else self.samples

    def step(self, workload: str, method: str, workers: int, links: Links, **changed: Any) -> Step:
        """`changed`: `codec` or `payload` of `Model.step`."""
        key = workload, method
        return self.model.step(key, workers, links, self.samples_of(workload), best=self.best, **changed)

    def alone(self, workload: str) -> float:
        work = self.model.works[workload]
        return work.fixed + work.each * self.samples_of(workload)

    def predict(self, networks: Sequence[Links], workers: Sequence[int]) -> list[Prediction]:
        """All methods on each of the networks with each number of workers."""
        found = []
        for workload in self.parts.workloads:
            alone = self.alone(workload)
            for links in networks:
                for method in self.parts.methods(workload):
                    there = [cell.workers for cell in self.parts.of(workload, method) if cell.network == links.name]
                    for count in workers:
                        step = self.step(workload, method, count, links)
                        low, high = self._interval((workload, method), count, links, float(step.total))
                        is_measured = bool(there) and min(there) <= count <= max(there)
                        found.append(
                            Prediction(workload, method, count, links.name, step, low, high, alone, is_measured)
                        )
        return found

    @functools.cached_property
    def _without(self) -> dict[tuple[str, str], tuple[Model, npt.NDArray[np.float64]]]:
        """By method, all models without a cell, and what each missed of it, as |log|."""
        found = {}
        for key in self.model.methods:
            held = [one for one in self.check.held if key in one.model.methods]
            misses = np.array([abs(np.log(one.predicted.total / one.cell.step_s)) for one in held])
            if held:
                found[key] = stack([one.model for one in held], key), misses
        return found

    def _interval(self, key: tuple[str, str], workers: int, links: Links, step: float) -> tuple[float, float]:
        """Jackknife+ of the logarithm (Barber, Candes, Ramdas and Tibshirani, 2021): by each model without a cell,
        moved by what it missed of that cell. So it is wider where these models differ, far from what was measured."""
        if key not in self._without:
            return step, step
        models, misses = self._without[key]
        totals = np.log(models.step(key, workers, links, self.samples_of(key[0]), best=self.best).total)
        low, high = np.quantile(totals - misses, (1 - LEVEL) / 2), np.quantile(totals + misses, (1 + LEVEL) / 2)
        return min(step, float(np.exp(low))), max(step, float(np.exp(high)))
