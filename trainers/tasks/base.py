"""The interface of a task: the loss of a batch, and the sums from which an evaluation gets its loss and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from gradsweep.errors import UsageError
from trainers.tasks.nested import count_rows

IGNORED = -100
"""The label of positions without a label, which torch's cross-entropy ignores."""

Sums = Mapping[str, np.ndarray]
"""Sums over the samples of an evaluation by name, float64 of any length."""


class Scores(NamedTuple):
    """The result of an evaluation: the mean loss, the accuracy, and all other metrics by name.

    The accuracy is NaN of a task that has none.
    """

    loss: float
    accuracy: float
    metrics: Mapping[str, float]


class Task(ABC):
    """What a model is trained for. Outputs and targets are tensors, or tuples, lists or dicts of them.

    `fixed` are the names of the sums if they and their length of 1 are known before the first batch.
    """

    fixed: ClassVar[tuple[str, ...]] = ()
    key: str
    """The task's key and value in the config, which errors name."""

    @abstractmethod
    def sum_losses(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Return the sum of the losses of all labels: a tensor (), to compute gradients from.

        Raises:
            UsageError: the outputs do not suit the task.
        """

    def count_correct(self, outputs: Any, targets: Any) -> float | torch.Tensor:
        """Return the number of labels that are predicted correctly; NaN if the task has no accuracy.

        A tensor () is not waited for until the step is complete.
        """
        return float("nan")

    @abstractmethod
    def judge(self, outputs: Any, targets: Any) -> Sums:
        """Return the sums of one batch of an evaluation.

        Raises:
            UsageError: the outputs do not suit the task.
        """

    @abstractmethod
    def summarise(self, sums: Sums) -> Scores:
        """Return the result of an evaluation from the sums over all its batches."""

    def add(self, sums: Sums | None, more: Sums, of: str = "batch") -> Sums:
        """Add sums to those of earlier batches or other workers; None: there are none yet.

        Raises:
            UsageError: names or lengths differ from those before.
        """
        if sums is None:
            return more
        if sums.keys() != more.keys():
            names = [", ".join(name for name in one if name != "loss") or "none" for one in (sums, more)]
            raise UsageError(
                f"{self.key}: the metrics of one {of} are {names[0]}, those of another {names[1]}; valid are the same "
                f"names in all"
            )
        if any(sums[name].shape != more[name].shape for name in sums):
            raise UsageError(f"{self.key}: the targets of one {of} have another shape than those of another")
        return {name: sums[name] + more[name] for name in sums}


def count_labels(targets: Any, outputs: Any = None) -> int:
    """Return the number of samples in targets; of outputs, if targets have no tensors."""
    return count_rows(targets) or count_rows(outputs)


def describe(value: object) -> str:
    """Return type and shape of an output or target for an error line."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
