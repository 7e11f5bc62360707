"""Options that name parts of the machine: GPUs by number, trackers by the package they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRACKERS: Mapping[str, str] = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""The package that each tracker needs, by the tracker's name, which is also that of the extra that installs it."""


def is_gpu(value: Any) -> bool:
    """Tell whether a value can be the number of a GPU."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
