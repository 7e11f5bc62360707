"""Any classifier of torchvision by name, with its own initial weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean, one_of
from trainers.models.inputs import Grey, explain_refusal
from trainers.options import models as options

CHANNELS = 3
"""The number of channels of the images that torchvision's models take."""


def _list_extra_options(config: options.Torchvision, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the arguments that some models need; auxiliary classifiers are off, as their outputs would not be used."""
    extras: dict[str, Any] = {}
    if config.arch in ("googlenet", "inception_v3"):
        extras.update(aux_logits=False, init_weights=True)
    if config.arch.startswith("vit_"):
        extras["image_size"] = shape[1]
    if config.arch.startswith("maxvit"):
        extras["input_size"] = tuple(shape[1:])
    if config.zero_init_residual:
        extras["zero_init_residual"] = True
    return extras


def _wrong_size(config: options.Torchvision, shape: tuple[int, ...], error: Exception) -> UsageError:
    reason = " ".join(str(error).split())[:160]
    return bad_value(
        "model.input_size",
        config.input_size,
        f"a larger one, such as 224: model.arch={config.arch} cannot take images of {shape[1]}x{shape[2]} ({reason})",
    )


def build(config: options.Torchvision, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build torchvision's model: input (N, 1 or 3, H, W), output (N, classes). Grey images become three equal channels.

    Raises:
        UsageError: torchvision has no such classifier, or it cannot take images of that shape.
        NotImplementedError: the model cannot be executed on its device (such as meta).
    """
    from trainers.models.torchvision_import import import_torchvision

    zoo = import_torchvision().models
    if config.arch not in (archs := zoo.list_models(module=zoo)):
        valid = one_of(archs, options.ARCHS_LISTED_BY)
        raise bad_value("model.arch", config.arch, valid, did_you_mean(config.arch, archs))
    if shape[0] not in (1, CHANNELS):
        raise UsageError(f"model.arch={config.arch} with images of {shape[0]} channels: valid are 1 and {CHANNELS}")
    try:
        model: nn.Module = zoo.get_model(
            config.arch, weights=None, num_classes=classes, **_list_extra_options(config, shape)
        )
    except (RuntimeError, ValueError, AssertionError) as error:
        if config.one_size:
            raise _wrong_size(config, shape, error) from error
        raise
    if shape[0] != CHANNELS:
        model.register_forward_pre_hook(Grey(CHANNELS))
    if (refusal := explain_refusal(model, shape)) is not None:  # the smallest image differs from model to model
        raise _wrong_size(config, shape, refusal) from refusal
    return model
