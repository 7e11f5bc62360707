"""VGG for small images (Simonyan and Zisserman, ICLR 2015).

Parameters for three channels and ten classes: VGG-16 with batch normalisation and the classifier alone 14,728,266;
ChocoSGD's VGG-11, 16 and 19 without it and with two hidden layers of 512 9,750,922, 15,245,130 and 20,554,826; the
layer-wise study's VGG-16, without it and with ImageNet's head, 134,301,514.
"""

from __future__ import annotations

from torch import nn

from trainers.models.image_classifier import draw_he_normal
from trainers.options import models as options

GROUPS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions between two maxima, by depth: the paper's configurations A, B, D and E."""


def build_features(config: options.VGG, channels: int) -> nn.Sequential:
    """Build five groups of 3x3 convolutions, each followed by 2x2 max pooling; the output has 512 channels."""
    layers: list[nn.Module] = []
    fan_in = channels
    for width, count in zip((64, 128, 256, 512, 512), GROUPS[config.depth], strict=True):
        for _ in range(count):
            layers.append(nn.Conv2d(fan_in, width, 3, 1, 1))
            if config.batch_norm:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            fan_in = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def build_head(config: options.VGG, classes: int) -> nn.Sequential:
    """Build the layers from the 512 channels to the classes."""
    if config.head == "linear":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
    if config.head == "hidden":
        return nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(config.dropout),
            nn.Linear(512, 512),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(512, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, classes),
        )
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(config.dropout),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(config.dropout),
        nn.Linear(4096, classes),
    )


def build(config: options.VGG, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build VGG: input (N, channels, H, W), output (N, classes).

    The initial weights are those of the head's source: `linear` as torch's layers have them (pytorch-cifar), `hidden`
    He's normal for convolutions (ChocoSGD), `imagenet` that and linear layers normal with deviation 0.01 (torchvision).
    """
    model = nn.Sequential(build_features(config, shape[0]), build_head(config, classes))
    if config.head != "linear":
        draw_he_normal(model)
    if config.head == "imagenet":
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)
    return model
