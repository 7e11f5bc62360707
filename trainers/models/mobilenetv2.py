"""MobileNetV2 for small images (Sandler et al., CVPR 2018), as pytorch-cifar and RedSync have it.

The first two strides are 1, and a block that changes its width without a stride has a projected shortcut. 2,296,922
parameters for three channels and ten classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.image_classifier import ImageClassifier
from trainers.models.resnet import build_projection
from trainers.options import models as options

GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and stride of the first block, for each group: the paper's table 2, with less stride."""


class Block(nn.Module):
    """An inverted residual: conv1x1 that widens, depthwise conv3x3, conv1x1 that narrows; ReLU behind the first two."""

    def __init__(self, fan_in: int, fan_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        width = expansion * fan_in
        self.conv1 = nn.Conv2d(fan_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, fan_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(fan_out)
        self.residual = stride == 1
        self.shortcut = build_projection(fan_in, fan_out, 1) if self.residual and fan_in != fan_out else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        if not self.residual:
            return out
        return out + (x if self.shortcut is None else self.shortcut(x))


def build(config: options.MobileNetV2, shape: tuple[int, ...], classes: int) -> ImageClassifier:
    """Build MobileNetV2 for images of `shape`, with torch's own initial weights, as in pytorch-cifar."""
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True)]
    fan_in = 32
    for expansion, width, count, first in GROUPS:
        for number in range(count):
            layers.append(Block(fan_in, width, expansion, first if number == 0 else 1))
            fan_in = width
    layers += [nn.Conv2d(fan_in, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU(True)]
    return ImageClassifier(layers, 1280, classes)
