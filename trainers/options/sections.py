"""Sections of a run: what every run has, without a name."""

from __future__ import annotations

import dataclasses

from compressors.parameters import choice, integer, number
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
class Checkpoint(Part):
    """When a run is saved, so that a later attempt can go on from there; changes no number of it."""

    every_minutes: float | None = number(10.0, 0.0, above=True, optional=True)
    every_steps: int | None = integer(None, low=1, optional=True)
    every_epochs: int | None = integer(None, low=1, optional=True)
    keep: int = integer(2, low=1)
    final: bool = False
