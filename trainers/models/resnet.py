"""Residual networks for small images (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016).

Two shapes: three groups of 16, 32 and 64 channels (the paper's section 4.2: ResNet-20 with shortcut A has 269,722
parameters for ten classes of CIFAR, with B 272,474), and the four groups of 64 to 512 channels of table 1, with a 3x3
stem that keeps the resolution (ResNet-18 11,173,962).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.image_classifier import draw_he_normal
from trainers.options import models as options


class PaddedShortcut(nn.Module):
    """Shortcut A, without parameters: every stride-th pixel, with zeros for channels that the input does not have."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.missing, self.stride = fan_out - fan_in, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.missing))


def build_projection(fan_in: int, fan_out: int, stride: int) -> nn.Sequential:
    """Build shortcut B: a 1x1 convolution and a batch normalisation."""
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out))


Shortcut = Callable[[int, int, int], nn.Module]


class Basic(nn.Module):
    """A block conv3x3-BN-ReLU-conv3x3-BN, plus the shortcut, then ReLU."""

    expansion = 1

    def __init__(self, fan_in: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(fan_in, width, stride) if stride != 1 or fan_in != width else None

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.norm2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class Bottleneck(nn.Module):
    """A block conv1x1-BN-ReLU-conv3x3-BN-ReLU-conv1x1-BN with four times the channels, plus the shortcut, then ReLU.

    The 3x3 convolution has the stride, as in fb.resnet.torch and all of the systems whose set-ups are reproduced here.
    """

    expansion = 4

    def __init__(self, fan_in: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        fan_out = self.expansion * width
        self.conv1 = nn.Conv2d(fan_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, fan_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(fan_out)
        self.shortcut = shortcut(fan_in, fan_out, stride) if stride != 1 or fan_in != fan_out else None

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.norm3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """A residual network: a 3x3 convolution, groups of blocks, global average pooling and a linear layer.

    Each group but the first halves the resolution.

    Args:
        block: makes a block, given its input channels, its width and its stride.
        expansion: output channels of a block over its width.
        blocks: of each group.
        width: of the blocks of the first group; it doubles from group to group.
        channels: of the images.
        classes: width of the output.

    Input (N, channels, H, W), output (N, classes).
    """

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        expansion: int,
        blocks: tuple[int, ...],
        width: int,
        channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        fan_in, layers = width, []
        for group, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if group > 0 and number == 0 else 1
                layers.append(block(fan_in, width << group, stride))
                fan_in = expansion * (width << group)
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Linear(fan_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.classifier(self.blocks(out).mean(dim=(2, 3)))


def build(config: options.ResNet | options.FourGroups, shape: tuple[int, ...], classes: int) -> ResNet:
    """Build three groups, initialised as in fb.resnet.torch (He's normal), or four, as in pytorch-cifar (torch's)."""
    if isinstance(config, options.ResNet):
        kind = Bottleneck if config.block == "bottleneck" else Basic
        block = functools.partial(kind, shortcut=PaddedShortcut if config.shortcut == "A" else build_projection)
        model = ResNet(block, kind.expansion, ((config.depth - 2) // 6,) * 3, 16, shape[0], classes)
        draw_he_normal(model)
    else:
        kind = Bottleneck if config.bottleneck else Basic
        block = functools.partial(kind, shortcut=build_projection)
        model = ResNet(block, kind.expansion, config.blocks, 64, shape[0], classes)
    if config.zero_init_residual:  # a block is the identity at first: Goyal et al., 2017, section 5.1
        for module in model.modules():
            if isinstance(module, (Basic, Bottleneck)):
                nn.init.zeros_(module.last_norm.weight)
    return model
