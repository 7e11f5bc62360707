"""The two AlexNets for CIFAR of the layer-wise study (Dutta et al., AAAI 2020), after Krizhevsky et al., NeurIPS 2012.

For three channels of 32x32 pixels and ten classes `dawn` has 2,255,296 parameters, `large` 23,272,266.
"""

from __future__ import annotations

from torch import nn

from trainers.models.resnet9 import Scaled, build_convolution
from trainers.options import models as options

SCALE = 0.125
"""The factor of the outputs of `dawn`."""


def build_dawn(channels: int, classes: int) -> nn.Sequential:
    """Build `dawn` in the style of ResNet-9: batch normalisation, no biases, and the head of ResNet-9."""
    return nn.Sequential(
        build_convolution(channels, 64, stride=2),
        nn.MaxPool2d(2),
        build_convolution(64, 192),
        nn.MaxPool2d(2),
        build_convolution(192, 384),
        build_convolution(384, 256),
        build_convolution(256, 256),
        nn.MaxPool2d(2),
        Scaled(256, classes, SCALE),
    )


def build_large(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build torchvision's AlexNet with small kernels: biases, no normalisation, dropout, two hidden layers of 4096."""
    channels, height, width = shape
    pixels = (((height + 1) // 2) // 8) * (((width + 1) // 2) // 8)
    features = nn.Sequential(
        nn.Conv2d(channels, 64, 3, 2, 1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 192, 3, 1, 1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 384, 3, 1, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, 1, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, 1, 1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )
    classifier = nn.Sequential(
        nn.Dropout(),
        nn.Linear(256 * pixels, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )
    return nn.Sequential(features, nn.Flatten(), classifier)


def build(config: options.AlexNet, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build AlexNet: input (N, channels, H, W), output (N, classes); torch's own initial weights, as in the study."""
    return build_dawn(shape[0], classes) if config.variant == "dawn" else build_large(shape, classes)
