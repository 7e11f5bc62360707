"""Algorithms by name: how the workers' gradients become new parameters; built by trainers/algorithms."""

from __future__ import annotations

import dataclasses

from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Synchronous(Part):
    """Every step, all workers take the same step along the mean of their (compressed) gradients."""


ALGORITHMS: dict[str, type] = {"sgd": Synchronous}
