"""Regression: outputs and targets are real numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from gradsweep.errors import UsageError
from trainers.tasks.base import Scores, Sums, Task, describe


class Regression(Task):
    """Mean squared error over samples and their numbers, mean absolute error (`mae`) and `r2`.

    Outputs have the targets' shape (n, ...), or (n, 1) for targets (n,). r2 is 1 - (sum of squared errors) / (sum of
    squared deviations from the mean), with a mean for each number of a target.
    """

    key = "task=regression"

    def sum_losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs, targets = match_shapes(outputs, targets)
        return F.mse_loss(outputs, targets, reduction="sum") / max(targets[0].numel(), 1)

    def judge(self, outputs: torch.Tensor, targets: torch.Tensor) -> Sums:
        outputs, targets = (part.double().flatten(1) for part in match_shapes(outputs, targets))
        errors = outputs - targets
        sums = {
            "loss": errors.square().sum(),
            "absolute": errors.abs().sum(),
            "samples": torch.tensor(float(len(targets))),
            "targets": targets.sum(0),
            "squares": targets.square().sum(0),
        }
        return {name: value.cpu().numpy() for name, value in sums.items()}

    def summarise(self, sums: Sums) -> Scores:
        numbers = float(sums["samples"]) * len(sums["targets"])
        spread = float((sums["squares"] - sums["targets"] ** 2 / sums["samples"]).sum())
        r2 = 1 - float(sums["loss"]) / spread if spread > 0 else math.nan
        metrics = {"mae": float(sums["absolute"]) / numbers, "r2": r2}
        return Scores(float(sums["loss"]) / numbers, math.nan, metrics)


def match_shapes(outputs: object, targets: object, key: str = "task=regression") -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and targets as tensors of the same type and shape (n, numbers, ...).

    Args:
        key: the key and value of the config that the error names.

    Raises:
        UsageError: they are no tensors, or their shapes differ.
    """
    if not isinstance(targets, torch.Tensor):
        raise UsageError(f"task=regression: the targets are {describe(targets)}; valid is a tensor, or task=custom")
    if targets.dim() == 1:
        targets = targets[:, None]
    shaped = outputs[:, None] if isinstance(outputs, torch.Tensor) and outputs.dim() == 1 else outputs
    if not isinstance(shaped, torch.Tensor) or shaped.shape != targets.shape:
        raise UsageError(
            f"{key}: the output is {describe(outputs)}; valid is a tensor {tuple(targets.shape)}, as the targets are, "
            f"or a task of your own (task=custom)"
        )
    return shaped, targets.to(shaped.dtype)
