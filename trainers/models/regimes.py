"""The optimisation regimes that belong to models, as in convNet.pytorch: settings by epoch. Loads no torch.

The figures are those of RedSync's fork (feifeibear/Deep-Gradient-Compression), or of convNet.pytorch itself for models
without a regime in the fork. They are tuned for the batch sizes used there; a schedule may scale the learning rates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from trainers.options import models as options


@dataclasses.dataclass(frozen=True)
class Phase:
    """Settings that hold from `epoch` (from 0) on; None: as in the phase before, or as in the optimizer's options."""

    epoch: int
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None


def _steps(first: Phase, *later: tuple[int, float]) -> tuple[Phase, ...]:
    return (first, *(Phase(epoch, lr) for epoch, lr in later))


RESNET_CIFAR = _steps(Phase(0, 0.1, 0.9, 1e-4), (81, 1e-2), (122, 1e-3), (164, 1e-4))
IMAGENET = _steps(Phase(0, 0.1, 0.9, 1e-4), (30, 1e-2), (60, 1e-3), (90, 1e-4))
WIDE_RESNET = _steps(Phase(0, 0.1, 0.9, 1e-4), (60, 2e-2), (120, 4e-3), (140, 1e-4))
MOBILENET = _steps(Phase(0, 0.1), (60, 1e-2), (120, 1e-3), (180, 1e-4))
VGG_CIFAR = _steps(Phase(0, 4e-3), (100, 4e-4))
LENET = _steps(Phase(0, 0.1), (81, 1e-2), (122, 1e-3), (164, 1e-4))
ALEXNET = (
    Phase(0, 1e-2, 0.9, 5e-4),
    Phase(10, 5e-3),
    Phase(15, 1e-3, weight_decay=0.0),
    Phase(20, 5e-4),
    Phase(25, 1e-4),
)
FULLY_CONNECTED = _steps(Phase(0, 0.1, 0.9, 1e-4), (10, 1e-2), (20, 1e-3), (30, 1e-4))

_SMALL_IMAGES: dict[type, tuple[Phase, ...]] = {
    options.WideResNet: WIDE_RESNET,
    options.ResNet: RESNET_CIFAR,
    options.ResNet18: RESNET_CIFAR,
    options.ResNet34: RESNET_CIFAR,
    options.ResNet50: RESNET_CIFAR,
    options.MobileNetV2: MOBILENET,
    options.VGG: VGG_CIFAR,
    options.AlexNet: ALEXNET,
    options.LeNet: LENET,
    options.FC: FULLY_CONNECTED,
    options.MLP: FULLY_CONNECTED,
}
_LIKE_RESNET = (options.WideResNet, options.ResNet, options.FourGroups, options.VGG)
_TORCHVISION = {"resnet": IMAGENET, "resnext": IMAGENET, "wide_resnet": IMAGENET, "vgg": IMAGENET, "alexnet": ALEXNET}


def find_regime(model_options: Any, dataset_name: str) -> tuple[Phase, ...] | None:
    """Return the phases of a model on a data set, in the order of their epochs (from 0); None if it has no regime.

    Args:
        model_options: one of the dataclasses of trainers.options.models.
        dataset_name: `imagenet` has a regime of its own; all others are trained as CIFAR is.
    """
    if isinstance(model_options, options.Torchvision):
        # made for ImageNet, whatever they are trained on
        return next((phases for arch, phases in _TORCHVISION.items() if model_options.arch.startswith(arch)), None)
    if dataset_name == "imagenet" and isinstance(model_options, _LIKE_RESNET):
        return IMAGENET
    return _SMALL_IMAGES.get(type(model_options))
