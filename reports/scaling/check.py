"""What the cost model misses of what it has not seen: cells of a sweep are left out and predicted by the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from reports.scaling.fit import Model, Step, fit
from reports.scaling.parts import Cell, Parts
from sweep.run import UsageError

WORST_MEDIAN, WORST_P90 = 0.30, 1.0
"""Relative errors of cells left out, above which nothing is extrapolated: such a model misses something."""
FEWEST = 4
"""Cells that can be left out one by one, below which the errors say nothing."""


@dataclasses.dataclass(frozen=True)
class Held:
    """A cell that was left out, what it measured, and what the model without it says; `model` is that one."""

    cell: Cell
    predicted: Step
    model: Model

    @property
    def error(self) -> float:
        """Relative, of the step's time."""
        return self.predicted.total / self.cell.step_s - 1


@dataclasses.dataclass(frozen=True)
class Check:
    """How well the model says what it has not seen.

    Attributes:
        held: each cell left out once, with the model of all others.
        beyond: the cells with the most workers, by the model of those with fewer; empty with two numbers of workers.
    """

    held: Sequence[Held]
    beyond: Sequence[Held]

    @property
    def median(self) -> float:
        """Of the absolute relative errors."""
        return _quantile(self.held, 0.5)

    @property
    def p90(self) -> float:
        return _quantile(self.held, 0.9)

    @property
    def beyond_median(self) -> float:
        return _quantile(self.beyond, 0.5)

    @property
    def worst(self) -> Held:
        return max(self.held, key=lambda one: abs(one.error))


def _quantile(held: Sequence[Held], share: float) -> float:
    errors = [abs(one.error) for one in held]
    return float(np.quantile(errors, share)) if errors else math.nan


def check(parts: Parts) -> Check:
    """Leave out one cell after the other, of methods that have others.

    Those whose communication tells of the CPUs are not predicted, unless there are no others.
    """
    held = []
    for cell in [cell for cell in parts.cells if cell.is_fair] or parts.cells:
        others = [other for other in parts.cells if other is not cell]
        if any((other.workload, other.method) == (cell.workload, cell.method) for other in others):
            model = fit(others, parts.traffic)
            held.append(Held(cell, model.of(cell), model))
    counts = sorted({cell.workers for cell in parts.cells})
    beyond = []
    if len(counts) > 2:
        few = [cell for cell in parts.cells if cell.workers < counts[-1]]
        model = fit(few, parts.traffic)
        last = [cell for cell in parts.cells if cell.workers == counts[-1] and cell.is_fair]
        beyond = [Held(cell, model.of(cell), model) for cell in last if (cell.workload, cell.method) in model.methods]
    return Check(held, beyond)


def refuse(found: Check) -> None:
    """Nothing where the model may be extrapolated.

    Raises:
        UsageError: it has missed too much of what was measured, or there is too little to know.
    """
    if len(found.held) < FEWEST:
        raise UsageError(
            f"scaling: {len(found.held)} cells (compressor, workers, network) can be left out to check the model, but "
            f"that takes {FEWEST} or more; run more compressors or numbers of workers"
        )
    if found.median <= WORST_MEDIAN and found.p90 <= WORST_P90:
        return
    worst = found.worst
    measure, limit = ("median", WORST_MEDIAN) if found.median > WORST_MEDIAN else ("90th percentile", WORST_P90)
    value = found.median if found.median > WORST_MEDIAN else found.p90
    raise UsageError(
        f"scaling: nothing is extrapolated: of {len(found.held)} cells left out one by one the model misses the step's "
        f"time by {value:.0%} ({measure}; at most {limit:.0%} is accepted); worst: {worst.cell.method}, "
        f"{worst.cell.workers} workers, network {worst.cell.network}: {worst.cell.step_s:.3g} s measured, "
        f"{worst.predicted.total:.3g} s predicted"
    )
