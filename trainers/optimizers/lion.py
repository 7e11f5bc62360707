"""Lion."""

from __future__ import annotations

import torch

from trainers.optimizers.base import Optimizer


class Lion(Optimizer):
    """Lion: w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w), then m = beta2 * m + (1 - beta2) * g.

    Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023, Algorithm 2. The authors' learning rate
    is 3 to 10 times smaller than AdamW's, and the weight decay as many times larger.
    """

    buffers = ("momentum",)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        config, gradients, momentum = self.config, self.flat.gradients, self.kept["momentum"]
        direction = torch.lerp(momentum, gradients, 1 - config.beta1).sign_()
        momentum.lerp_(gradients, 1 - config.beta2)
        self._shrink(lr)
        self.flat.values.add_(direction, alpha=-lr)
