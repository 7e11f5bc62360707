"""Evaluation after an epoch: of the model, or of decentralised workers' average and of each worker's model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from trainers.algorithms.base import Algorithm
from trainers.data.feeds import Feed
from trainers.options.algorithms import Decentralised
from trainers.recording.local_models import LocalModels
from trainers.replica.replica import Replica


class Evaluation(NamedTuple):
    """The result of an evaluation: loss and metrics over the test set, and figures of the workers' own models.

    Loss and metrics are those of the common model, or of the average of the workers' models. The accuracy is NaN if the
    task has none; all other metrics are in `metrics`.
    """

    test_loss: float
    test_accuracy: float
    metrics: Mapping[str, float]
    local: LocalModels | None = None


def evaluate(options: object, algorithm: Algorithm, replica: Replica, feed: Feed, epoch: int) -> Evaluation:
    """Evaluate the model after `epoch`. All workers call this; it leaves their state unchanged.

    With a decentralised algorithm, first every worker evaluates its own model (parameters and buffers) on the whole
    test set; then all workers evaluate the average of their models, each on a share of the test set. Neither counts as
    training time, and the messages for it count as no traffic.

    Args:
        options: of the algorithm, `config.algorithm`.
    """
    if not isinstance(options, Decentralised):
        with algorithm.use_evaluation_parameters():
            return Evaluation(*replica.evaluate(feed, epoch))
    values = replica.flat.values
    own = values.clone()
    judged = replica.evaluate_alone(feed, epoch)[:2] if options.evaluate_local else (math.nan, math.nan)
    with algorithm.use_evaluation_parameters(), replica.keep_buffers():
        distance = float(torch.linalg.vector_norm(own.sub_(values), dtype=torch.float64))
        together = replica.evaluate(feed, epoch)
    everyone = np.empty((replica.comm.size, 3))
    replica.comm.Allgather(np.array([*judged, distance]), everyone)
    loss, accuracy, distances = everyone.T
    return Evaluation(*together, LocalModels(loss, accuracy, distances, are_judged=options.evaluate_local))
