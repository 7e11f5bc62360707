"""ResNet-9 of DAWNBench (Page, "How to Train Your ResNet", 2018; cifar10-fast), as the layer-wise study trains it.

6,573,120 parameters in 25 tensors for three channels and ten classes: only the convolutions, the batch normalisations
and the classifier's matrix.
"""

from __future__ import annotations

import torch
from torch import nn

from trainers.options import models as options


def build_convolution(fan_in: int, fan_out: int, stride: int = 1) -> nn.Sequential:
    """Build conv3x3-BN-ReLU."""
    return nn.Sequential(
        nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False), nn.BatchNorm2d(fan_out), nn.ReLU(inplace=True)
    )


class Residual(nn.Module):
    """A residual block: the input plus the output of two convolutions, each with BN and ReLU; no ReLU after the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(build_convolution(width, width), build_convolution(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


class Scaled(nn.Module):
    """A classifier head: global max pooling, a linear layer without bias, and multiplication by a constant."""

    def __init__(self, width: int, classes: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes, bias=False)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.amax(dim=(2, 3))) * self.scale


def build(config: options.ResNet9, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build ResNet-9: input (N, channels, H, W), output (N, classes); torch's own initial weights, as in cifar10-fast.

    The last max pooling is over all remaining pixels; in the source it is over 4x4, which is the same for 32x32 images.
    """
    return nn.Sequential(
        build_convolution(shape[0], 64),
        build_convolution(64, 128),
        nn.MaxPool2d(2),
        Residual(128),
        build_convolution(128, 256),
        nn.MaxPool2d(2),
        build_convolution(256, 512),
        nn.MaxPool2d(2),
        Residual(512),
        Scaled(512, classes, config.scale),
    )
