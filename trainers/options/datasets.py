"""Data sets by name; read by trainers/data."""

from __future__ import annotations

import dataclasses

from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class Digits(Part):
    """The 1,797 handwritten 8x8 digits bundled with scikit-learn; 1,437 to train, 360 to test."""


@dataclasses.dataclass(frozen=True)
class Cifar10(Part):
    """CIFAR-10 (Krizhevsky, 2009) from the user's own copy of cifar-10-batches-py."""


DATASETS: dict[str, type] = {"digits": Digits, "cifar10": Cifar10}
