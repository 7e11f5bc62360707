"""Predict how many times as fast as another method a method is, with an interval."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from reports.scaling.measured.links import Links
from reports.scaling.model.fit import CostModel, stack_models
from reports.scaling.model.predict import LEVEL, Predictor

Array = npt.NDArray[np.float64]


def is_close(low: float, high: float) -> bool:
    """Tell whether an interval of a speed-up contains 1, so that it does not tell which of two methods is faster."""
    return low <= 1 <= high


@dataclasses.dataclass(frozen=True)
class Pair:
    """Cost models for the interval of a ratio: two methods' step times, compared by models that each leave out one
    cell.

    A cell of one method counts if the other method has a cell with the same workers, network and batch. `misses` has
    for each model its absolute error in the logarithm of the ratio for that cell.
    """

    method: tuple[str, str]
    base: tuple[str, str]
    of_method: CostModel
    of_base: CostModel
    misses: Array

    @classmethod
    def from_predictor(cls, predictor: Predictor, workload: str, method: str, base: str) -> Pair | None:
        """Return the pair of two methods; None if they have no such cells, or no network was measured."""
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

    def compute_interval(self, predictor: Predictor, workers: int, links: Links) -> tuple[Array, Array]:
        """Return the jackknife+ interval of the ratio, computed as in `Predictor._compute_interval`.

        Args:
            links: alpha or beta may be columns, (points, 1); then the ends are (points,).
        """

        def total(model: CostModel, key: tuple[str, str]) -> Array:
            samples = predictor.get_samples(key[0])
            return np.asarray(model.predict_step(key, workers, links, samples, best=predictor.best).total)

        ratios = np.log(total(self.of_base, self.base) / total(self.of_method, self.method))
        low = np.quantile(ratios - self.misses, (1 - LEVEL) / 2, axis=-1)
        high = np.quantile(ratios + self.misses, (1 + LEVEL) / 2, axis=-1)
        return np.exp(low), np.exp(high)
