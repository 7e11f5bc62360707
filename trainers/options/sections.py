"""Sections of a run: what every run has, without a name."""

from __future__ import annotations

import dataclasses
import math

from compressors.parameters import InvalidParameter, boolean, choice, integer, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Batch(Part):
    """Samples per optimizer step: of all workers together (`global`) or of each (`worker`).

    A worker computes its share in `accumulate` pieces, one after the other.
    """

    size: int = integer(128, low=1)
    per: str = choice("global", "global", "worker")
    accumulate: int = integer(1, low=1)

    def total(self, workers: int) -> int:
        """The global batch size."""
        return self.size if self.per == "global" else self.size * workers


@dataclasses.dataclass(frozen=True)
class Data(Part):
    """Places: the root of the user's data sets, with the prepared arrays in `root`/prepared."""

    root: str = "data"


@dataclasses.dataclass(frozen=True)
class Clip(Part):
    """Bounds of gradients: of what the optimizer is given, and of a worker's own before it is compressed."""

    norm: float | None = number(None, 0.0, above=True, optional=True)
    value: float | None = number(None, 0.0, above=True, optional=True)
    local_norm: float | None = number(None, 0.0, above=True, optional=True)


@dataclasses.dataclass(frozen=True)
class Scaling(Part):
    """The learning rate grows with the number of workers, or with the global batch over `base_batch`."""

    rule: str = choice("none", "none", "linear", "sqrt")
    by: str = choice("workers", "workers", "batch")
    base_batch: int = integer(128, low=1)
    warmup_from_base: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_from_base and self.rule == "none":
            raise InvalidParameter("warmup_from_base", True, "false with rule=none: nothing is scaled")

    def factor(self, workers: int, global_batch: int) -> float:
        """What the learning rate is multiplied by."""
        times = float(workers) if self.by == "workers" else global_batch / self.base_batch
        return {"none": 1.0, "linear": times, "sqrt": math.sqrt(times)}[self.rule]
