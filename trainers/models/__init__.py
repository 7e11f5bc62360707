"""Models by name, one file a family, which is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainers.options import models as options

if TYPE_CHECKING:
    from torch import nn

FAMILIES: dict[type, str] = {
    options.WideResNet: "wideresnet",
    options.MLP: "mlp",
}
"""The module in which a kind of model is built, by its options."""


def build(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model that `config` describes, with initial weights from torch's global generator.

    Args:
        config: one of the dataclasses of trainers.options.models.
        shape: of a sample: channels, height and width of an image.
        classes: width of the output.
    """
    module = importlib.import_module(f"trainers.models.{FAMILIES[type(config)]}")
    model: nn.Module = module.build(config, shape, classes)
    return model
