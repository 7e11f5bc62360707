"""Gradient clipping (Pascanu, Mikolov and Bengio, ICML 2013)."""

from __future__ import annotations

import math

import torch

from compressors.kernels import norms
from trainers.options.sections import Clip


class Clipping:
    """Clips flat gradients in place, so that gradients that are equal on all hosts stay equal to the bit."""

    def __init__(self, config: Clip, gradients: torch.Tensor) -> None:
        self.config, self.gradients = config, gradients
        if config.norm is not None or config.local_norm is not None:
            norms.squares(gradients[:1])  # loads the kernels

    @property
    def needs_whole(self) -> bool:
        """Whether the whole gradient of a worker must be complete before any unit may be sent."""
        return self.config.local_norm is not None

    def clip_local(self) -> None:
        """Clip a worker's own gradient before it is sent."""
        self._bound(self.config.local_norm)

    def clip_final(self) -> None:
        """Clip the gradient for the optimizer: element by element, then by its norm."""
        if self.config.value is not None:
            self.gradients.clamp_(-self.config.value, self.config.value)
        self._bound(self.config.norm)

    def _bound(self, limit: float | None) -> None:
        if limit is None:
            return
        norm = math.sqrt(norms.squares(self.gradients))
        if norm > limit:
            self.gradients.mul_(limit / norm)
