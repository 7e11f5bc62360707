"""Wide residual networks for small images (Zagoruyko and Komodakis, BMVC 2016).

With three input channels and ten classes WRN-10-1 has 77,850 parameters, WRN-28-10 36,479,194.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.image_classifier import ImageClassifier, draw_he_normal
from trainers.options import models as options


class Block(nn.Module):
    """B(3,3) with pre-activation: BN-ReLU-conv-BN-ReLU-(dropout)-conv, plus the shortcut.

    Where the width changes, the shortcut is a 1x1 convolution of the activated input.
    """

    def __init__(self, fan_in: int, fan_out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.dropout = dropout
        self.shortcut = nn.Conv2d(fan_in, fan_out, 1, stride, bias=False) if fan_in != fan_out else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = F.relu(self.norm1(x), inplace=True)
        out = F.relu(self.norm2(self.conv1(active)), inplace=True)
        if self.dropout > 0:
            out = F.dropout(out, self.dropout, self.training)
        return self.conv2(out) + (x if self.shortcut is None else self.shortcut(active))


def build(config: options.WideResNet, shape: tuple[int, ...], classes: int) -> ImageClassifier:
    """Build WRN-depth-widen: three groups of (depth - 4) / 6 blocks with 16, 32 and 64 times `widen` channels.

    Input (N, channels, H, W), output (N, classes).
    """
    fan_in = 16
    layers: list[nn.Module] = [nn.Conv2d(shape[0], fan_in, 3, 1, 1, bias=False)]
    for group, width in enumerate((16 * config.widen, 32 * config.widen, 64 * config.widen)):
        for block in range((config.depth - 4) // 6):
            layers.append(Block(fan_in, width, 2 if group > 0 and block == 0 else 1, config.dropout))
            fan_in = width
    model = ImageClassifier([*layers, nn.BatchNorm2d(fan_in), nn.ReLU(inplace=True)], fan_in, classes)
    draw_he_normal(model)
    nn.init.zeros_(model.classifier.bias)
    return model
