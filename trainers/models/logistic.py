"""Logistic regression: a model whose loss is convex."""

from __future__ import annotations

import math

import torch
from torch import nn

from trainers.options import models as options


class Logistic(nn.Module):
    """A linear classifier, whose cross-entropy is the logistic loss.

    For two classes it has one logit z, with as many weights as features, and returns (0, z): the cross-entropy is ln(1
    + exp(-y z)) with y = -1 for class 0 and y = 1 for class 1. For more classes it has a logit for each. The weights
    start at zero, where the loss is ln(classes).

    Input (N, *shape), output (N, classes).
    """

    def __init__(self, features: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.binary = classes == 2
        self.linear = nn.Linear(features, 1 if self.binary else classes, bias)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.linear(x.flatten(1))
        return torch.cat((torch.zeros_like(logits), logits), 1) if self.binary else logits


def build(config: options.Logistic, shape: tuple[int, ...], classes: int) -> Logistic:
    """Build logistic regression on all numbers of a sample."""
    return Logistic(math.prod(shape), classes, config.bias)
