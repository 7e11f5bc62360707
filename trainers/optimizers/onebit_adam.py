"""1-bit Adam."""

from __future__ import annotations

import torch

from trainers.gradients.flat import Unit
from trainers.optimizers.adam import Adam


class OneBitAdam(Adam):
    """1-bit Adam: freezes the variance v after a warm-up of `freeze_steps`, and from then on exchanges the momentum m.

    Tang et al., "1-bit Adam: communication efficient large-scale training with Adam's convergence speed", ICML 2021.
    The warm-up is Adam without bias correction, as in the paper's Algorithm 1: m = beta1 * m + (1 - beta1) * g,
    v = beta2 * v + (1 - beta2) * g^2, w -= lr * m / (sqrt(v) + eps). After it, every worker sends
    beta1 * m + (1 - beta1) * g with its own gradient g, and the exchanged mean is the new m of all workers. The error
    feedback of the paper is memory=residual. Weight decay is decoupled.

    A parameter with v = 0 at the end of the warm-up has had no gradient in it. Its compressed momentum would be divided
    by eps alone, so this parameter is no longer updated. A tiny v, as behind units that are hardly ever active, is
    similarly dangerous: with eps = 1e-8, as in the paper, an MLP on the digits diverges after a warm-up of 12 or 20
    steps; with 1e-4 (the default) it does not.
    """

    @property
    def frozen(self) -> bool:
        """Whether the next step keeps the variance and exchanges the momentum."""
        return int(self.kept["steps"]) >= int(self.config.freeze_steps)

    @torch.no_grad()
    def prepare(self, unit: Unit) -> None:
        if self.frozen:
            beta1 = self.config.beta1
            unit.gradient.mul_(1 - beta1).add_(self._get_part("momentum", unit), alpha=beta1)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        config, gradients = self.config, self.flat.gradients
        momentum, variance = self.kept["momentum"], self.kept["variance"]
        if self.frozen:
            momentum.copy_(gradients)
            momentum.masked_fill_(variance == 0, 0.0)
        else:
            momentum.lerp_(gradients, 1 - config.beta1)
            variance.mul_(config.beta2).addcmul_(gradients, gradients, value=1 - config.beta2)
        self.kept["steps"].add_(1)
        self._shrink(lr)
        deviation = torch.sqrt(variance, out=gradients).add_(config.eps)
        self.flat.values.addcdiv_(momentum, deviation, value=-lr)
