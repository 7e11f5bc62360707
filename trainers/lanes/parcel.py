"""Parcels, which are units during a step, and parts of a message."""

from __future__ import annotations

import dataclasses

import torch

from compressors import Compressor, Key
from trainers.gradients.flat import Unit


@dataclasses.dataclass(frozen=True)
class Parcel:
    """A unit during a step: the tensor to compress (`x`), the compressor, and the key of its random numbers."""

    unit: Unit
    compressor: Compressor
    key: Key
    x: torch.Tensor


@dataclasses.dataclass(frozen=True)
class MessagePart:
    """Units that are sent together: the bytes from `start` to `end` of a message, and the size of each payload."""

    parcels: list[Parcel]
    sizes: list[int]
    start: int
    end: int
