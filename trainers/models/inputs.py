"""Convert a batch of images before a model's first layer, by forward pre-hooks, as convNet.pytorch does.

Hooks, unlike layers around the model, leave the names of its parameters as they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize images (n, C, H, W) to (n, C, size, size), bilinear, unless they have that size. n may be 0."""
    if images.shape[-2:] == (size, size):
        return images
    return F.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def explain_refusal(model: nn.Module, shape: tuple[int, ...]) -> Exception | None:
    """Return the error of a model in training mode for an image of this shape; None if the model accepts it.

    Raises:
        NotImplementedError: the model cannot be executed on its device (such as meta).
    """
    device = next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(1, *shape, device=device))
    except NotImplementedError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:
        return error
    finally:
        model.train()
    return None


@dataclasses.dataclass(frozen=True)
class Resize:
    """A forward pre-hook that resizes images (N, C, H, W) to (N, C, size, size), bilinear."""

    size: int

    def __call__(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (resize(inputs[0], self.size),)


@dataclasses.dataclass(frozen=True)
class Grey:
    """A forward pre-hook that repeats the single channel of grey images: (N, 1, H, W) to (N, channels, H, W)."""

    channels: int

    def __call__(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (inputs[0].expand(-1, self.channels, -1, -1),)
