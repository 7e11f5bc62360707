"""GoogLeNet for small images (Szegedy et al., "Going Deeper with Convolutions", CVPR 2015), as pytorch-cifar has it.

Batch normalisation everywhere, a 3x3 stem that keeps the resolution, two 3x3 convolutions for each of 5x5, no
auxiliary classifiers. 6,166,250 parameters for three channels and ten classes.
"""

from __future__ import annotations

import torch
from torch import nn

from trainers.models.image_classifier import ImageClassifier
from trainers.options import models as options

MODULES: tuple[tuple[int, int, int, int, int, int] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
"""The paper's table 1: channels of the branches 1x1, 3x3 (reduced, then out), 5x5 (likewise), pool; None halves the
resolution."""


def build_convolution(fan_in: int, fan_out: int, kernel: int) -> nn.Sequential:
    """Build conv-BN-ReLU with a bias: the normalisation makes it superfluous, but the source counts it."""
    return nn.Sequential(
        nn.Conv2d(fan_in, fan_out, kernel, 1, kernel // 2), nn.BatchNorm2d(fan_out), nn.ReLU(inplace=True)
    )


class Inception(nn.Module):
    """Four branches side by side; (N, C, H, W) to (N, the sum of their channels, H, W)."""

    def __init__(self, fan_in: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int) -> None:
        super().__init__()
        two = nn.Sequential(build_convolution(fan_in, reduce3, 1), build_convolution(reduce3, three, 3))
        double = nn.Sequential(
            build_convolution(fan_in, reduce5, 1), build_convolution(reduce5, five, 3), build_convolution(five, five, 3)
        )
        pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), build_convolution(fan_in, pool, 1))
        self.branches = nn.ModuleList([build_convolution(fan_in, one, 1), two, double, pooled])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def build(config: options.GoogLeNet, shape: tuple[int, ...], classes: int) -> ImageClassifier:
    """Build GoogLeNet for images of `shape`, with torch's own initial weights, as in pytorch-cifar."""
    layers: list[nn.Module] = [build_convolution(shape[0], 192, 3)]
    fan_in = 192
    for widths in MODULES:
        if widths is None:
            layers.append(nn.MaxPool2d(3, 2, 1))
            continue
        layers.append(Inception(fan_in, *widths))
        one, _, three, _, five, pool = widths
        fan_in = one + three + five + pool
    return ImageClassifier(layers, fan_in, classes)
