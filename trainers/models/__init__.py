"""Models by name, one file for each family, imported only when it is needed. Loads no torch by itself."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from gradsweep.errors import UsageError
from gradsweep.targets import name_errors
from trainers.config.groups import get_name
from trainers.models.fitting import check_fits
from trainers.options import models as options

if TYPE_CHECKING:
    from torch import nn

FAMILIES: dict[type, str] = {
    options.WideResNet: "wideresnet",
    options.ResNet: "resnet",
    options.ResNet18: "resnet",
    options.ResNet34: "resnet",
    options.ResNet50: "resnet",
    options.SENet18: "senet",
    options.ResNet9: "resnet9",
    options.AlexNet: "alexnet",
    options.VGG: "vgg",
    options.DenseNet: "densenet",
    options.MobileNetV2: "mobilenetv2",
    options.GoogLeNet: "googlenet",
    options.LeNet: "lenet",
    options.FC: "lenet",
    options.MLP: "mlp",
    options.Logistic: "logistic",
    options.LSTM: "lstm",
    options.GPT: "gpt",
    options.Torchvision: "zoo",
    options.Custom: "custom",
}
"""The module in which a kind of model is built, by its options."""


def try_out(config: Any, shape: tuple[int, ...], classes: int, least: int = 2) -> None:
    """Refuse samples that `build` would refuse, without the memory and time that building a model needs.

    For most models `check_fits` decides. A model of torchvision has to try an image: it is built on the meta device,
    whose tensors have only shapes.

    Raises:
        UsageError: the model does not accept such samples, or so many classes.
    """
    check_fits(config, shape, classes, least=least)
    if isinstance(config, options.Torchvision):
        import torch

        # some (regnet) compute with their weights while they are built: what they take shows on the ranks
        with contextlib.suppress(NotImplementedError), torch.device("meta"):
            build(config, shape, classes, least)


def build(config: Any, shape: tuple[int, ...], classes: int, least: int = 2) -> nn.Module:
    """Build the model that `config` describes, with initial weights from torch's global generator.

    Args:
        config: one of the dataclasses of trainers.options.models.
        shape: of a sample: channels, height and width of an image; (features,) of a vector; (length,) of a text.
        classes: width of the output; of a language model the size of the vocabulary, of a regression the numbers of a
            target.
        least: number of classes; 1 of a regression.

    Raises:
        UsageError: the model does not accept such samples, or so many classes.
    """
    check_fits(config, shape, classes, least=least)
    seen = shape
    if isinstance(config, options.ImageModel) and config.input_size is not None:
        seen = (shape[0], config.input_size, config.input_size)
    if hasattr(config, "build"):
        model = _build_plugin(config, seen, classes)
    else:
        model = importlib.import_module(f"trainers.models.{FAMILIES[type(config)]}").build(config, seen, classes)
    if seen != shape:
        from trainers.models.inputs import Resize

        model.register_forward_pre_hook(Resize(seen[1]))
    return model


def describe_own(config: Any) -> str | None:
    """Return the key and value by which a config names a model of the user's own code; None for a model of ours."""
    if isinstance(config, options.Custom):
        return f"model.target={config.target}"
    return f"model={get_name(config)}" if hasattr(config, "build") else None


def _build_plugin(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a model of a plug-in.

    Raises:
        UsageError: it raises an error, or what it returns is no model.
    """
    from torch import nn

    with name_errors(f"model={get_name(config)}: its build"):
        model = config.build(shape, classes)
    if not isinstance(model, nn.Module):
        found = type(model).__name__
        raise UsageError(f"model={get_name(config)}: its build returns a {found}; valid is a torch.nn.Module")
    return model


def require_takes(model: nn.Module, shape: tuple[int, ...], when: str) -> None:
    """Check that a model in training mode accepts images of this shape, as a later phase of the run has them.

    Args:
        when: the phase, in words for the error.

    Raises:
        UsageError: the model does not accept them.
    """
    from trainers.models.inputs import explain_refusal

    if (error := explain_refusal(model, shape)) is not None:
        raise UsageError(
            f"phases: size={shape[1]} {when}: valid are sizes that the model takes, which says "
            f"{' '.join(str(error).split())[:160]}"
        ) from error
