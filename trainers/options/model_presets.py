"""Names of models with certain options: conf/model/NAME.yaml."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "wrn_28_10": ("wideresnet", {"depth": 28, "widen": 10}),
    "wrn_40_4": ("wideresnet", {"depth": 40, "widen": 4}),
    "resnet20": ("resnet", {"depth": 20}),
    "resnet32": ("resnet", {"depth": 32}),
    "resnet44": ("resnet", {"depth": 44}),
    "resnet56": ("resnet", {"depth": 56}),
    "resnet110": ("resnet", {"depth": 110}),
    "resnet110_choco": ("resnet", {"depth": 110, "shortcut": "B", "block": "bottleneck"}),
    "alexnet1": ("alexnet", {"variant": "large"}),
    "vgg11": ("vgg", {"depth": 11}),
    "vgg13": ("vgg", {"depth": 13}),
    "vgg16": ("vgg", {"depth": 16}),
    "vgg19": ("vgg", {"depth": 19}),
    "vgg11_choco": ("vgg", {"depth": 11, "head": "hidden", "batch_norm": False}),
    "vgg16_choco": ("vgg", {"depth": 16, "head": "hidden", "batch_norm": False}),
    "vgg19_choco": ("vgg", {"depth": 19, "head": "hidden", "batch_norm": False}),
    "vgg16_layerwise": ("vgg", {"depth": 16, "head": "imagenet", "batch_norm": False}),
    "densenet40": ("densenet", {"depth": 40, "bottleneck": False, "compression": 1.0}),
    "densenet121": ("densenet", {"depth": 121, "growth": 32, "blocks": 4}),
    "densenet190": ("densenet", {"depth": 190, "growth": 40}),
    "densenet_cifar": ("densenet", {"depth": 121, "blocks": 4}),
    "lenet_mnist": ("lenet", {"input_size": 32}),
    "lenet_atomo": ("lenet", {"variant": "atomo"}),
}
