"""SGD for gradients to which the memory has already applied momentum."""

from __future__ import annotations

import torch

from trainers.optimizers.base import Optimizer


class DGCSGD(Optimizer):
    """SGD with momentum of weight decay only: w -= lr * (g + d) with b = momentum * b + weight_decay * w and d = b.

    With `nesterov`, d = weight_decay * w + momentum * b. This is the code of Lin et al. (ICLR 2018): memory=dgc has
    already applied momentum to g, but not to weight decay, which no memory holds back. If the memory holds nothing
    back, the update is that of SGD with the same momentum.
    """

    buffers = ("decay",)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        direction, decay = self.flat.gradients, self.kept["decay"]
        decay.mul_(self.momentum)
        self._decay_into(decay)
        if self.config.nesterov:
            self._decay_into(direction)
            direction.add_(decay, alpha=self.momentum)
        else:
            direction.add_(decay)
        self.flat.values.add_(direction, alpha=-lr)
