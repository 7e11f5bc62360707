"""A model of the user's own: what a target returns."""

from __future__ import annotations

import torch
from torch import nn

from gradsweep.errors import UsageError
from gradsweep.targets import call_target
from trainers.options import models as options


def build(config: options.Custom, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Call the target with its arguments, and with `shape` and `classes` if it has parameters of these names.

    Raises:
        UsageError: the target cannot be imported or called, or does not return a module with parameters to train.
    """
    offered = {"shape": torch.Size(shape), "classes": classes}
    model = call_target("model.target", config.target, config.args, offered=offered)
    key = f"model.target={config.target}"
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"{key} returns a {type(model).__name__}; valid is a function or class that makes an nn.Module"
        )
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        raise UsageError(
            f"{key} returns a module with lazy parameters; valid is one whose parameters have their shapes"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"{key} returns a module without parameters to train; valid is one with some")
    return model
