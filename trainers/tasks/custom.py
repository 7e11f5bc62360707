"""A task of the user's own: an object with `loss` and, if wanted, `metrics`.

    loss(outputs, targets) -> tensor ()        the mean over the samples of the batch, to compute gradients from
    metrics(outputs, targets) -> dict          by name a number, the mean over the samples of the batch, or a pair
                                               (sum, count), whose sums over all batches are divided

`outputs` is what the model returns, with floating-point tensors as float32; `targets` is what the data set gives. The
loss is called for every batch, metrics in evaluations, where no gradients are computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gradsweep.errors import UsageError
from gradsweep.targets import call_target, name_errors
from trainers.options import tasks as options
from trainers.tasks.base import IGNORED, Scores, Sums, Task, count_labels, describe

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}", re.ASCII)
_VALID = "a number, the mean over the samples, or a pair (sum, count)"
_VALID_CODE = "code that works on every batch of the data set"


class Custom(Task):
    """The task that a target returns.

    Args:
        is_text: samples are texts with a label at every position: means are over the labels.

    Raises:
        UsageError: the target cannot be imported or called, or what it returns has no method `loss`.
    """

    def __init__(self, config: options.Custom, is_text: bool = False) -> None:
        self.key = f"task.target={config.target}"
        self.own: Any = call_target("task.target", config.target, config.args)
        self.is_text = is_text
        if not callable(getattr(self.own, "loss", None)):
            given = f"a {type(self.own).__name__}"
            raise UsageError(
                f"{self.key} returns {given} without loss; valid is an object with loss(outputs, targets) and, if "
                f"wanted, metrics(outputs, targets)"
            )

    def sum_losses(self, outputs: Any, targets: Any) -> torch.Tensor:
        with name_errors(f"{self.key}: loss", _VALID_CODE):
            loss = self.own.loss(outputs, targets)
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.is_floating_point():
            raise UsageError(f"{self.key}: loss returns {describe(loss)}; valid is a floating-point tensor ()")
        return loss * self._count(outputs, targets)

    def judge(self, outputs: Any, targets: Any) -> Sums:
        count = self._count(outputs, targets)
        sums = {"loss": np.array([float(self.sum_losses(outputs, targets)), count])}
        if hasattr(self.own, "metrics"):
            with name_errors(f"{self.key}: metrics", _VALID_CODE):
                named = self.own.metrics(outputs, targets)
            if not isinstance(named, Mapping):
                raise UsageError(f"{self.key}: metrics returns {describe(named)}; valid is a dict by name")
            sums |= {self._check_name(name): self._convert(name, value, count) for name, value in named.items()}
        return sums

    def summarise(self, sums: Sums) -> Scores:
        means = {name: float(value[0] / value[1]) if value[1] else math.nan for name, value in sums.items()}
        return Scores(means.pop("loss"), means.pop("accuracy", math.nan), means)

    def _count(self, outputs: Any, targets: Any) -> int:
        if self.is_text and isinstance(targets, torch.Tensor):
            return int((targets != IGNORED).sum())
        return count_labels(targets, outputs)

    def _check_name(self, name: object) -> str:
        if isinstance(name, str) and _NAME.fullmatch(name) and name != "loss":
            return name
        raise UsageError(
            f"{self.key}: metrics has the name {name!r}; valid are letters, digits and underscores, 40 at most, other "
            f"than loss"
        )

    def _convert(self, name: str, value: Any, count: int) -> np.ndarray:
        """Return sum and count of a metric, (2,)."""
        try:
            if isinstance(value, (tuple, list)):
                total, number = map(float, value)
                return np.array([total, number])
            return np.array([float(value) * count, count])
        except (TypeError, ValueError, RuntimeError):
            raise UsageError(f"{self.key}: the metric {name} is {describe(value)}; valid is {_VALID}") from None
