"""Layers and initial weights that several families of image classifiers share."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class ImageClassifier(nn.Module):
    """A classifier: given layers, global average pooling of their `width` output channels, and a linear layer.

    Input (N, channels, H, W), output (N, classes).
    """

    def __init__(self, layers: Iterable[nn.Module], width: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def draw_he_normal(model: nn.Module) -> None:
    """Draw convolutions normal with variance 2 / (kernel height x width x output channels); set their biases to zero.

    He et al., "Delving Deep into Rectifiers", ICCV 2015, with the fan of the output, as fb.resnet.torch has it.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
