"""A unit on its way in a step, and units that travel together."""

from __future__ import annotations

import dataclasses

import torch

from compressors import Compressor, Key
from trainers.gradients.flat import Unit


@dataclasses.dataclass(frozen=True)
class Parcel:
    """A unit in a step: what is compressed of it (`x`), by what, and the random numbers for that."""

    unit: Unit
    compressor: Compressor
    key: Key
    x: torch.Tensor


@dataclasses.dataclass(frozen=True)
class MessagePart:
    """Units that travel together: the bytes from `start` to `end` of the message, and how long each payload is."""

    parcels: list[Parcel]
    sizes: list[int]
    start: int
    end: int
