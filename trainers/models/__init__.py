"""Models by name, one file a family, which is imported when it is asked for. Loads no torch by itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    options.Torchvision: "zoo",
}
"""The module in which a kind of model is built, by its options."""


def build(config: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model that `config` describes, with initial weights from torch's global generator.

    Args:
        config: one of the dataclasses of trainers.options.models.
        shape: of a sample: channels, height and width of an image; (features,) of a vector; (length,) of a text.
        classes: width of the output; of a language model the size of the vocabulary.

    Raises:
        UsageError: the model cannot be fed with such samples, or have so many classes.
    """
    check_fits(config, shape, classes)
    module = importlib.import_module(f"trainers.models.{FAMILIES[type(config)]}")
    seen = _seen(config, shape)
    model: nn.Module = module.build(config, seen, classes)
    if seen != shape:
        from trainers.models.inputs import Resize

        model.register_forward_pre_hook(Resize(seen[1]))
    return model


def check(config: Any, shape: tuple[int, ...], classes: int, kind: str) -> None:
    """What `build` would refuse, before anything starts. Loads torch only for models of torchvision.

    Args:
        kind: of the data set: images, features or text.

    Raises:
        UsageError: as `build`.
    """
    check_fits(config, shape, classes, kind)
    if isinstance(config, options.Torchvision):
        from trainers.models import zoo

        zoo.check(config, _seen(config, shape), classes)


def _seen(config: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what the first layer gets."""
    if isinstance(config, options.ImageModel) and config.input_size is not None:
        return (shape[0], config.input_size, config.input_size)
    return shape
