"""Squeeze-and-excitation networks for small images (Hu et al., CVPR 2018), as pytorch-cifar and Accordion have them.

SENet-18 has 11,260,354 parameters for three channels and ten classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from trainers.options import models as options

REDUCTION = 16
"""Channels of a block over those of its excitation's hidden layer."""


class Block(nn.Module):
    """BN-ReLU-conv3x3-BN-ReLU-conv3x3, its channels weighted by what the mean over the pixels says, plus the shortcut.

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


class SENet(nn.Module):
    """Four groups of two blocks with 64 to 512 channels. Input (N, channels, H, W), output (N, classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(64)
        fan_in, layers = 64, []
        for group, width in enumerate((64, 128, 256, 512)):
            for stride in (2 if group > 0 else 1, 1):
                layers.append(Block(fan_in, width, stride))
                fan_in = width
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Linear(fan_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.classifier(self.blocks(out).mean(dim=(2, 3)))


def build(config: options.SENet18, shape: tuple[int, ...], classes: int) -> SENet:
    """SENet-18 for images of `shape`, with torch's own initial weights, as in pytorch-cifar."""
    return SENet(shape[0], classes)
