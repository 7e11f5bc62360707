"""Learning-rate schedules by name; trainers/schedules.py computes them."""

from __future__ import annotations

import dataclasses

from compressors.parameters import number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Constant(Part):
    """The learning rate stays, after a linear warm-up over the first `warmup_epochs`."""

    warmup_epochs: float = number(0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Cosine(Part):
    """Linear warm-up over `warmup_epochs`, then half a cosine down to zero at the last step."""

    warmup_epochs: float = number(1.0, 0.0)


SCHEDULES: dict[str, type] = {"constant": Constant, "cosine": Cosine}
