"""What is judged after an epoch: the model, or where each worker has one, their average and every single one."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import torch

from gradsweep.run_directory import LOCAL_EPOCH_COLUMNS, LOCAL_MODEL_COLUMNS
from trainers.algorithms.base import Algorithm
from trainers.data.feeds import Feed
from trainers.options.algorithms import Decentralised
from trainers.replica.replica import Replica


@dataclasses.dataclass(frozen=True)
class LocalModels:
    """The workers' own models after an epoch, by worker, (workers,) each; all workers know of all.

    `loss` and `accuracy` are over the whole test set, NaN where that was not asked for; `distance` is
    ||x_i - mean x|| of the parameters.
    """

    loss: np.ndarray
    accuracy: np.ndarray
    distance: np.ndarray

    @property
    def consensus_distance(self) -> float:
        """sqrt(mean_i ||x_i - mean x||^2), as Koloskova, Stich and Jaggi (ICML 2019) bound it, per worker."""
        return math.sqrt(np.mean(np.square(self.distance)))

    @property
    def are_judged(self) -> bool:
        """Accuracies are known; a loss may also be NaN because it is no number."""
        return not np.isnan(self.accuracy).any()

    def columns(self) -> dict[str, float]:
        """What epochs.csv says of them, without what was not asked for."""
        judged = (self.loss.mean(), self.accuracy.mean(), self.accuracy.min(), self.accuracy.max())
        values = (*(judged if self.are_judged else ()), self.consensus_distance)
        names = LOCAL_EPOCH_COLUMNS[-len(values) :]
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    def rows(self, epoch: int) -> list[dict[str, float]]:
        """What local_models.csv says of them."""
        found = []
        for worker, values in enumerate(zip(self.loss, self.accuracy, self.distance, strict=True)):
            row = dict(zip(LOCAL_MODEL_COLUMNS, (epoch, worker, *map(float, values)), strict=True))
            found.append(row if self.are_judged else {name: row[name] for name in ("epoch", "worker", "distance")})
        return found


class Evaluation(NamedTuple):
    """Mean loss and accuracy over the test set, of the model that all have or of the average of those that each has."""

    test_loss: float
    test_accuracy: float
    local: LocalModels | None = None


def evaluate(options: object, algorithm: Algorithm, replica: Replica, feed: Feed, epoch: int) -> Evaluation:
    """Judge what `epoch` has led to; all workers call this alike, and afterwards each is as it was before.

    Of a decentralised algorithm, first every worker judges its own model, parameters and buffers, on the whole test
    set by itself; then all of them together the average of their models, a share of the test set each. What that
    costs is no training time, and what travels for it is counted as no traffic.

    Args:
        options: of the algorithm, `config.algorithm`.
    """
    if not isinstance(options, Decentralised):
        with algorithm.evaluated():
            return Evaluation(*replica.evaluate(feed, epoch))
    values = replica.flat.values
    own = values.clone()
    judged = replica.evaluate_alone(feed, epoch) if options.evaluate_local else (math.nan, math.nan)
    with algorithm.evaluated(), replica.buffers_kept():
        distance = float(torch.linalg.vector_norm(own.sub_(values), dtype=torch.float64))
        together = replica.evaluate(feed, epoch)
    everyone = np.empty((replica.comm.size, 3))
    replica.comm.Allgather(np.array([*judged, distance]), everyone)
    return Evaluation(*together, LocalModels(*everyone.T))
