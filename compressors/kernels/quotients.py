"""Division with IEEE rounding on every device."""

from __future__ import annotations

import torch


def divide(x: torch.Tensor, divisor: float) -> torch.Tensor:
    """Return x / divisor, rounded once. On a GPU torch would multiply by the rounded reciprocal of a plain number."""
    return x / x.new_full((), divisor)
