"""The steps of 0/1 Adam, whose rounds trainers/algorithms/zero_one_adam.py plans."""

from __future__ import annotations

import torch

from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options import optimizers as options


class ZeroOneAdam(Optimizer):
    """Adam without bias correction whose variance v stays in most steps, and local steps from an anchor x.

    Every step is m = beta1 * m + (1 - beta1) * g, w -= lr * m / (sqrt(v) + eps), with decoupled weight decay; where
    `learns`, v = beta2 * v + (1 - beta2) * g^2 before it. In local steps, g is the worker's own gradient, and x, which
    all workers have alike, shrinks by the weight decay as w does. A round exchanges (x - w) * (sqrt(v) + eps), which is
    the sum of lr * m. With its mean s, m = s / (sum of lr) and x = w = x - s / (sqrt(v) + eps) on all workers.

    A parameter with v = 0 has had no gradient in a step that learned. It is not moved, because compressed exchanges
    would send it a noise that is divided by eps alone.
    """

    buffers = ("momentum", "variance", "anchor")

    def __init__(self, flat: Flat, config: options.ZeroOneAdam) -> None:
        super().__init__(flat, config)
        self.kept["rates"] = torch.zeros((), dtype=torch.float64)  # sum of lr since the last round
        self.learns = True

    @property
    def has_moved(self) -> bool:
        """Whether there were local steps since the last round."""
        return bool(self.kept["rates"])

    @torch.no_grad()
    def step(self, lr: float) -> None:
        config, gradients = self.config, self.flat.gradients
        momentum, variance = self.kept["momentum"], self.kept["variance"]
        if self.learns:
            variance.mul_(config.beta2).addcmul_(gradients, gradients, value=1 - config.beta2)
        momentum.lerp_(gradients, 1 - config.beta1).masked_fill_(variance == 0, 0.0)
        self._shrink(lr)
        deviation = torch.sqrt(variance, out=gradients).add_(config.eps)
        self.flat.values.addcdiv_(momentum, deviation, value=-lr)

    def begin_local_steps(self) -> None:
        """Set the anchor to the parameters, which all workers have alike."""
        self.kept["anchor"].copy_(self.flat.values)

    @torch.no_grad()
    def take_local_step(self, lr: float) -> None:
        """Take a step along the worker's own gradient."""
        self.step(lr)
        self._shrink(lr, self.kept["anchor"])
        self.kept["rates"].add_(lr)

    @torch.no_grad()
    def begin_round(self) -> None:
        """Replace the gradients by what a round exchanges, and the parameters by the anchor."""
        anchor = self.kept["anchor"]
        torch.sub(anchor, self.flat.values, out=self.flat.gradients).mul_(self._compute_deviation())
        self.flat.values.copy_(anchor)

    @torch.no_grad()
    def end_round(self) -> None:
        """Take the mean of a round, which is in place of the gradients, on to the momentum and the parameters."""
        total = self.flat.gradients.masked_fill_(self.kept["variance"] == 0, 0.0)
        torch.div(total, float(self.kept["rates"]), out=self.kept["momentum"])
        self.flat.values.addcdiv_(total, self._compute_deviation(), value=-1.0)
        self.kept["anchor"].copy_(self.flat.values)
        self.kept["rates"].zero_()

    def _compute_deviation(self) -> torch.Tensor:
        return self.kept["variance"].sqrt().add_(self.config.eps)
