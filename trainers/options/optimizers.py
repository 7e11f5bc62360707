"""Optimizers by name; trainers/optimizers does what they say."""

from __future__ import annotations

import dataclasses

from compressors.parameters import InvalidParameter, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class SGD(Part):
    """Stochastic gradient descent with momentum, in PyTorch's convention (dampening 0)."""

    lr: float = number(0.1, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    nesterov: bool = True
    weight_decay: float = number(5e-4, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise InvalidParameter("nesterov", True, "false where momentum is 0")


OPTIMIZERS: dict[str, type] = {"sgd": SGD}
