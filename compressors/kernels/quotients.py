"""Division as IEEE has it, on every device."""

from __future__ import annotations

import torch


def divided(x: torch.Tensor, divisor: float) -> torch.Tensor:
    """x / divisor, rounded once. A plain number behind the stroke will not do: on a GPU torch then multiplies by its
    rounded reciprocal."""
    return x / x.new_full((), divisor)
