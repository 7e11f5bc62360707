"""What is done to a batch of images before a model's first layer: convNet.pytorch's input transform.

These are hooks and no layers around the model, so the names of its parameters stay as they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Resize:
    """A forward pre-hook: (N, C, H, W) to (N, C, size, size), bilinear; nothing where they have that size."""

    size: int

    def __call__(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        images = inputs[0]
        if images.shape[-2:] == (self.size, self.size):
            return inputs
        return (F.interpolate(images, (self.size, self.size), mode="bilinear", align_corners=False),)


@dataclasses.dataclass(frozen=True)
class Grey:
    """A forward pre-hook: (N, 1, H, W) to (N, channels, H, W), the grey of an image in each channel."""

    channels: int

    def __call__(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (inputs[0].expand(-1, self.channels, -1, -1),)
