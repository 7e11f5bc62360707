"""A plain multi-layer perceptron."""

from __future__ import annotations

import math

from torch import nn

from trainers.options.models import MLP


def build(config: MLP, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build `layers` hidden layers of `width` units with ReLU, then a linear classifier.

    Input (N, *shape), output (N, classes).
    """
    sizes = [math.prod(shape)] + [config.width] * config.layers
    hidden: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        hidden += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], classes))
