"""SGD for gradients that bring their own momentum."""

from __future__ import annotations

import torch

from trainers.optimizers.base import Optimizer


class DGCSGD(Optimizer):
    """w -= lr * (g + d) where only weight decay has momentum: b = momentum * b + weight_decay * w, d = b.

    With `nesterov`, d = weight_decay * w + momentum * b. So Lin et al. (ICLR 2018) have it in their code: g comes from
    memory=dgc, which has the gradient's momentum, but weight decay is known to all workers and is withheld by none.
    Where nothing is withheld, the sum is that of SGD with the same momentum.
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
