"""Squeeze-and-excitation networks for small images (Hu et al., CVPR 2018), as pytorch-cifar and Accordion have them.

SENet-18 has 11,260,354 parameters for three channels and ten classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.resnet import ResNet
from trainers.options import models as options

REDUCTION = 16
"""The ratio of a block's channels to those of its excitation's hidden layer."""


class Block(nn.Module):
    """BN-ReLU-conv3x3-BN-ReLU-conv3x3 with channel weights computed from the mean over the pixels, plus the shortcut.

    Where the shape changes, the shortcut is a 1x1 convolution of the activated input.
    """

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        changes = stride != 1 or fan_in != fan_out
        self.shortcut = nn.Conv2d(fan_in, fan_out, 1, stride, bias=False) if changes else None
        self.squeeze = nn.Conv2d(fan_out, fan_out // REDUCTION, 1)
        self.excite = nn.Conv2d(fan_out // REDUCTION, fan_out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = F.relu(self.norm1(x))
        out = self.conv2(F.relu(self.norm2(self.conv1(active)), inplace=True))
        weights = torch.sigmoid(self.excite(F.relu(self.squeeze(out.mean(dim=(2, 3), keepdim=True)))))
        return out * weights + (x if self.shortcut is None else self.shortcut(active))


def build(config: options.SENet18, shape: tuple[int, ...], classes: int) -> ResNet:
    """Build SENet-18 for images of `shape`, with torch's own initial weights, as in pytorch-cifar."""
    return ResNet(Block, 1, (2, 2, 2, 2), 64, shape[0], classes)
