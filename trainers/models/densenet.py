"""DenseNets for small images (Huang et al., "Densely Connected Convolutional Networks", CVPR 2017).

For three channels and ten classes DenseNet-BC (L=100, k=12) has 769,162 parameters, (190, 40) 25,624,430 and the
four-block one of 121 layers 6,956,298.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from trainers.models.image_classifier import ImageClassifier, draw_he_normal
from trainers.options import models as options


class Layer(nn.Module):
    """BN-ReLU-conv3x3 with `growth` channels; (N, C, H, W) to (N, C + growth, H, W), with the input as first
    channels."""

    def __init__(self, fan_in: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(fan_in)
        self.conv = nn.Conv2d(fan_in, growth, 3, 1, 1, bias=False)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _drop(self.conv(F.relu(self.norm(x))), self)
        return torch.cat((x, out), 1)


class BottleneckLayer(nn.Module):
    """BN-ReLU-conv1x1 with four times `growth` channels in front of the 3x3 convolution."""

    def __init__(self, fan_in: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = nn.Conv2d(fan_in, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _drop(self.conv1(F.relu(self.norm1(x))), self)
        out = _drop(self.conv2(F.relu(self.norm2(out), inplace=True)), self)
        return torch.cat((x, out), 1)


class Transition(nn.Module):
    """BN-ReLU-conv1x1 and a mean of 2x2 pixels."""

    def __init__(self, fan_in: int, fan_out: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(fan_in)
        self.conv = nn.Conv2d(fan_in, fan_out, 1, bias=False)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(_drop(self.conv(F.relu(self.norm(x))), self), 2)


def _drop(x: torch.Tensor, layer: Layer | BottleneckLayer | Transition) -> torch.Tensor:
    return F.dropout(x, layer.dropout, layer.training) if layer.dropout > 0 else x


def build(config: options.DenseNet, shape: tuple[int, ...], classes: int) -> ImageClassifier:
    """Build dense blocks with transitions between them: input (N, channels, H, W), output (N, classes).

    Three blocks start as in the paper and ChocoSGD (He's normal, the classifier's bias zero), four as torch's layers
    do, as in pytorch-cifar.
    """
    kind = BottleneckLayer if config.bottleneck else Layer
    width = config.stem or (2 * config.growth if config.bottleneck else 16)
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, 1, 1, bias=False)]
    for block, count in enumerate(config.layers):
        if block > 0:
            # the tiny share: 0.58 x 100 is 57.99999999999999 in binary fractions
            fan_out = max(1, int(width * config.compression + 1e-9))
            layers.append(Transition(width, fan_out, config.dropout))
            width = fan_out
        for _ in range(count):
            layers.append(kind(width, config.growth, config.dropout))
            width += config.growth
    model = ImageClassifier([*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True)], width, classes)
    if config.blocks == 3:
        draw_he_normal(model)
        nn.init.zeros_(model.classifier.bias)
    return model
