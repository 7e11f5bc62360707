"""Cross-validate the cost model: leave out cells of a sweep, and predict them from the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from gradsweep.errors import UsageError
from reports.scaling.measured.cell import MeasuredCell
from reports.scaling.measured.measurements import Measurements
from reports.scaling.model.fit import CostModel, StepTimes, fit_model

WORST_MEDIAN, WORST_P90 = 1.3, 2.0
"""The factors of error for cells left out above which nothing is extrapolated."""
FEWEST = 4
"""The number of cells left out one by one below which the errors say nothing."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A cell that was left out of a fit: its predicted step, and the cost model fitted to the other cells."""

    cell: MeasuredCell
    predicted: StepTimes
    model: CostModel

    @property
    def error(self) -> float:
        """The relative error of the predicted step time."""
        return self.predicted.total / self.cell.step_s - 1

    @property
    def factor(self) -> float:
        """The factor, at least 1, between the predicted and the measured step time."""
        ratio = self.predicted.total / self.cell.step_s
        return max(ratio, 1 / ratio)


@dataclasses.dataclass(frozen=True)
class CrossValidation:
    """The errors of the cost model for cells that it was not fitted to.

    Attributes:
        held: each cell, predicted by the model of all others.
        beyond: the cells with the most workers, predicted by the model of those with fewer; empty if there are only two
            numbers of workers.
        limited: the number of cells that were not predicted, since the CPUs were their limit.
    """

    held: Sequence[HeldOut]
    beyond: Sequence[HeldOut]
    limited: int = 0

    @property
    def median(self) -> float:
        """The median of the absolute relative errors."""
        return _compute_error_quantile(self.held, 0.5)

    @property
    def p90(self) -> float:
        return _compute_error_quantile(self.held, 0.9)

    @property
    def beyond_median(self) -> float:
        return _compute_error_quantile(self.beyond, 0.5)

    @property
    def worst(self) -> HeldOut:
        return max(self.held, key=lambda one: one.factor)

    def get_factor_quantile(self, share: float) -> float:
        """Return a quantile of the factors between predicted and measured step times of the left-out cells."""
        return float(np.quantile([one.factor for one in self.held], share))


def _compute_error_quantile(held: Sequence[HeldOut], share: float) -> float:
    errors = [abs(one.error) for one in held]
    return float(np.quantile(errors, share)) if errors else math.nan


def cross_validate(parts: Measurements) -> CrossValidation:
    """Leave out one cell after another, if its method has other cells, and predict it from the others.

    Cells whose communication was limited by the CPUs are not predicted.
    """
    fair = [cell for cell in parts.cells if cell.is_fair]
    held = []
    for cell in fair:
        own = [other for other in parts.cells if _get_key(other) == _get_key(cell) and other is not cell]
        if traffic := parts.infer_traffic(own):
            others = [other for other in parts.cells if other is not cell]
            model = fit_model(others, {**parts.traffic, **traffic})
            held.append(HeldOut(cell, model.predict_cell(cell), model))
    counts = sorted({cell.workers for cell in parts.cells})
    beyond = []
    if len(counts) > 2:
        few = [cell for cell in parts.cells if cell.workers < counts[-1]]
        traffic = parts.infer_traffic(few)
        model = fit_model([cell for cell in few if _get_key(cell) in traffic], traffic)
        last = [cell for cell in fair if cell.workers == counts[-1]]
        beyond = [HeldOut(cell, model.predict_cell(cell), model) for cell in last if _get_key(cell) in model.methods]
    return CrossValidation(held, beyond, len(parts.cells) - len(fair))


def _get_key(cell: MeasuredCell) -> tuple[str, str]:
    return cell.workload, cell.method


def refuse_poor_fit(found: CrossValidation) -> None:
    """Refuse to extrapolate from a cost model with large errors.

    Raises:
        UsageError: the model's errors are too large, or too few cells can be left out.
    """
    if len(found.held) < FEWEST:
        what = "run more compressors or numbers of workers"
        if found.limited:
            what = f"in {found.limited} the CPUs were the limit, not the network; run on a slower network or more cores"
        raise UsageError(
            f"scaling: {len(found.held)} cells (compressor, workers, network) can be left out to check the model, but "
            f"that takes {FEWEST} or more; {what}"
        )
    for measure, share, limit in (("median", 0.5, WORST_MEDIAN), ("90th percentile", 0.9, WORST_P90)):
        if (value := found.get_factor_quantile(share)) <= limit:
            continue
        worst = found.worst
        raise UsageError(
            f"scaling: nothing is extrapolated: the model predicts the steps of {len(found.held)} cells left out one "
            f"by one {value:.3g} times too long or too short ({measure}; at most {limit:g} times is accepted); worst: "
            f"{worst.cell.method}, {worst.cell.workers} workers, network {worst.cell.network}: "
            f"{worst.cell.step_s:.3g} s measured, {worst.predicted.total:.3g} s predicted"
        )
