"""Sections of a run: what every run has, without a name."""

from __future__ import annotations

import dataclasses

from compressors.parameters import boolean, choice, integer, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Batch(Part):
    """Samples per optimizer step: of all workers together (`global`) or of each (`worker`)."""

    size: int = integer(128, low=1)
    per: str = choice("global", "global", "worker")

    def total(self, workers: int) -> int:
        """The global batch size."""
        return self.size if self.per == "global" else self.size * workers


@dataclasses.dataclass(frozen=True)
class Data(Part):
    """Places: the root of the user's data sets, with the prepared arrays in `root`/prepared."""

    root: str = "data"


@dataclasses.dataclass(frozen=True)
class LossScale(Part):
    """With precision=fp16 the loss is multiplied by this before backward, and the gradient divided by it again.

    Dynamic as in Micikevicius et al. (ICLR 2018): halved where the gradient of any worker overflows, a step that all
    workers then leave out; doubled after `growth_interval` steps in a row without that.
    """

    initial: float = number(65536.0, 0.0, 2.0**100, above=True)
    dynamic: bool = boolean(True)
    growth_interval: int = integer(2000, low=1)
