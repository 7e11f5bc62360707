"""Bounds of gradients (Pascanu, Mikolov and Bengio, ICML 2013)."""

from __future__ import annotations

import math

import torch

from compressors.kernels import norms
from trainers.options.sections import Clip


class Clipping:
    """Cuts flat gradients in place. Workers that clip the same gradient get the same bits, also on different hosts."""

    def __init__(self, config: Clip, gradients: torch.Tensor) -> None:
        self.config, self.gradients = config, gradients
        if config.norm is not None or config.local_norm is not None:
            norms.squares(gradients[:1])  # loads the kernels

    @property
    def needs_whole(self) -> bool:
        """The whole gradient of a worker must be known before any of it may leave."""
        return self.config.local_norm is not None

    def clip_local(self) -> None:
        """Of a worker's own gradient, complete and not yet sent."""
        self._bound(self.config.local_norm)

    def clip_final(self) -> None:
        """Of the gradient that the optimizer is given: element by element, then the norm."""
        if self.config.value is not None:
            self.gradients.clamp_(-self.config.value, self.config.value)
        self._bound(self.config.norm)

    def _bound(self, limit: float | None) -> None:
        if limit is None:
            return
        norm = math.sqrt(norms.squares(self.gradients))
        if norm > limit:
            self.gradients.mul_(limit / norm)
