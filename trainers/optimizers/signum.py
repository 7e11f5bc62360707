"""The sign of the momentum."""

from __future__ import annotations

import torch

from trainers.optimizers.base import Optimizer


class Signum(Optimizer):
    """Signum: m = momentum * m + (1 - momentum) * g; w -= lr * (sign(m) + weight_decay * w).

    Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD", ICML 2018, Algorithm 2, applied to the mean gradient.
    Without `decoupled`, weight decay is added to g instead. If m is 0, w changes only by weight decay.
    """

    buffers = ("momentum",)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        gradients = self.flat.gradients
        if self.config.decoupled:
            self._shrink(lr)
        else:
            self._decay_into(gradients)
        momentum = self.kept["momentum"].mul_(self.momentum).add_(gradients, alpha=1 - self.momentum)
        self.flat.values.add_(torch.sign(momentum, out=gradients), alpha=-lr)
