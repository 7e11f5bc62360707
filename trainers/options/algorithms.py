"""Algorithms by name: how the workers' gradients become new parameters; built by trainers/algorithms."""

from __future__ import annotations

import dataclasses

from compressors.parameters import InvalidParameter, boolean, integer, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Synchronous(Part):
    """Every step, all workers take the same step along the mean of their (compressed) gradients."""


@dataclasses.dataclass(frozen=True)
class LocalSGD(Part):
    """Workers take steps of their own; every `steps` of them, what they have moved is averaged."""

    steps: int = integer(8, low=1)
    from_step: int = integer(1, low=1)
    outer_lr: float = number(1.0, 0.0, above=True)
    outer_momentum: float = number(0.0, 0.0, 0.9999)
    outer_nesterov: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer_nesterov and self.outer_momentum == 0:
            raise InvalidParameter("outer_nesterov", True, "false where outer_momentum is 0")


ALGORITHMS: dict[str, type] = {"sgd": Synchronous, "local_sgd": LocalSGD}
