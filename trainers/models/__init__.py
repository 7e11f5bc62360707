"""Models by name, one file a family. A family is imported when it is asked for."""

from __future__ import annotations

from typing import Any

from torch import nn

from trainers.config import MLP, WideResNet


def build(config: Any, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The model that `config` describes.

    Args:
        config: one of the dataclasses of the group `model` in trainers.config.
        shape: channels, height and width of a sample.
        classes: width of the output.
    """
    if isinstance(config, WideResNet):
        from trainers.models import wideresnet

        return wideresnet.WideResNet(config.depth, config.widen, config.dropout, shape[0], classes)
    if isinstance(config, MLP):
        from trainers.models import mlp

        return mlp.mlp(config.width, config.layers, shape, classes)
    raise TypeError(f"no model is built from {config!r}")
