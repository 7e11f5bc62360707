"""The evaluation of the workers' own models after an epoch, with the columns and rows that record it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from gradsweep.csv_columns import LOCAL_EPOCH_COLUMNS, LOCAL_MODEL_COLUMNS


@dataclasses.dataclass(frozen=True)
class LocalModels:
    """The figures of the workers' own models after an epoch: arrays (workers,), known to all workers.

    `loss` and `accuracy` are over the whole test set, NaN if they were not evaluated, the latter also if the task has
    none; `distance` is ||x_i - mean x|| of the parameters. `are_judged`: the models were evaluated.
    """

    loss: np.ndarray
    accuracy: np.ndarray
    distance: np.ndarray
    are_judged: bool = True

    @property
    def consensus_distance(self) -> float:
        """The root mean square of `distance` over the workers, as bounded by Koloskova, Stich and Jaggi (ICML 2019)."""
        return math.sqrt(np.mean(np.square(self.distance)))

    def columns(self) -> dict[str, float]:
        """Return the models' columns for epochs.csv, without values that were not evaluated."""
        judged = (self.loss.mean(), self.accuracy.mean(), self.accuracy.min(), self.accuracy.max())
        values = (*(judged if self.are_judged else ()), self.consensus_distance)
        names = LOCAL_EPOCH_COLUMNS[-len(values) :]
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    def rows(self, epoch: int, step: int) -> list[dict[str, float]]:
        """Return the models' rows for local_models.csv."""
        rows = []
        for worker, values in enumerate(zip(self.loss, self.accuracy, self.distance, strict=True)):
            row = dict(zip(LOCAL_MODEL_COLUMNS, (epoch, step, worker, *map(float, values)), strict=True))
            rows.append(
                row if self.are_judged else {name: row[name] for name in ("epoch", "step", "worker", "distance")}
            )
        return rows
