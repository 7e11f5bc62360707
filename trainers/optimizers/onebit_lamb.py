"""1-bit LAMB."""

from __future__ import annotations

import math

import torch

from trainers.gradients.flat import Flat, Unit
from trainers.optimizers.lamb import LAMB, clip, compute_norm
from trainers.options import optimizers as options


class OneBitLAMB(LAMB):
    """1-bit LAMB: LAMB for `freeze_steps` steps; then the variance v stays, and the momentum m is exchanged.

    Li, Awan, Tang, Rajbhandari and He, "1-bit LAMB: communication efficient large-scale large-batch training with
    LAMB's convergence speed", HiPC 2022, Algorithm 1, and its code in DeepSpeed. After the warm-up, every worker sends
    s * (beta1 * m + (1 - beta1) * g) with its own gradient g; the exchanged mean, divided by s, is the new m of all
    workers. The factors s, one for each tensor, give all momenta the same root mean square at the end of the warm-up,
    so that one magnitude suits a unit of several tensors. The error feedback of the paper is memory=residual.

    The coefficient of a tensor is then c * r: c is the moving average of LAMB's coefficients in the warm-up, with the
    decay `coefficient_beta`. r follows a second variance v', which goes on with the gradients (m - beta1 * m_old) /
    (1 - beta1) that the momenta imply: r is the largest (sqrt(v) + eps) / (sqrt(v') + eps) of the tensor, at least
    `min_factor` and at most `max_factor`, and changes in a step by at most a part `factor_change` of itself. With
    weight decay, only its share |u without decay| / |u| counts, and 1 for the rest.

    A parameter with v = 0 at the end of the warm-up is no longer updated, as in `OneBitAdam`.
    """

    buffers = ("momentum", "variance", "fresh", "scales")

    def __init__(self, flat: Flat, config: options.OneBitLAMB) -> None:
        super().__init__(flat, config)
        self.kept["steps"] = torch.zeros((), dtype=torch.int64)
        self.kept["coefficients"] = torch.zeros(len(self._tensors), dtype=torch.float64)
        self.kept["factors"] = torch.ones(len(self._tensors), dtype=torch.float64)

    @property
    def frozen(self) -> bool:
        """Whether the next step keeps the variance and exchanges the momentum."""
        return int(self.kept["steps"]) >= int(self.config.freeze_steps)

    @torch.no_grad()
    def prepare(self, unit: Unit) -> None:
        if self.frozen:
            beta1, scales = self.config.beta1, self._get_part("scales", unit)
            unit.gradient.mul_(1 - beta1).add_(self._get_part("momentum", unit), alpha=beta1).mul_(scales)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        if self.frozen:
            self._take_frozen_step(lr)
        else:
            self._average(self._take_step(lr))
        self.kept["steps"].add_(1)
        if int(self.kept["steps"]) == self.config.freeze_steps:
            self._freeze()

    def _average(self, coefficients: list[float]) -> None:
        """Take the coefficients of a step of the warm-up into their moving averages; those of 1 say nothing."""
        averages, beta = self.kept["coefficients"], self.config.coefficient_beta
        for number, coefficient in enumerate(coefficients):
            if coefficient != 1.0:
                averages[number] = beta * float(averages[number]) + (1 - beta) * coefficient

    def _freeze(self) -> None:
        """End the warm-up: begin with v' = v, and choose the factors of the momenta.

        A tensor whose coefficient was always 1 has no average, and keeps 1.
        """
        self.kept["coefficients"].masked_fill_(self.kept["coefficients"] == 0, 1.0)
        self.kept["fresh"].copy_(self.kept["variance"])
        momenta = [self.kept["momentum"][tensor] for tensor in self._tensors]
        magnitudes = [compute_norm(momentum) / math.sqrt(momentum.numel()) for momentum in momenta]
        mean = sum(magnitudes) / len(magnitudes)
        for tensor, magnitude in zip(self._tensors, magnitudes, strict=True):
            self.kept["scales"][tensor] = mean / magnitude if magnitude else 1.0

    def _take_frozen_step(self, lr: float) -> None:
        config, received, momentum = self.config, self.flat.gradients, self.kept["momentum"]
        received.div_(self.kept["scales"]).masked_fill_(self.kept["variance"] == 0, 0.0)
        implied = momentum.mul_(-config.beta1).add_(received).div_(1 - config.beta1)
        self.kept["fresh"].mul_(config.beta2).addcmul_(implied, implied, value=1 - config.beta2)
        momentum.copy_(received)
        update = self._compute_update()
        adaptive = [compute_norm(update[tensor]) for tensor in self._tensors]
        self._decay_into(update)
        for number, tensor in enumerate(self._tensors):
            length = compute_norm(update[tensor])
            share = min(1.0, adaptive[number] / length) if length else 1.0
            factor = share * self._compare_variances(tensor) + (1 - share)
            last, change = float(self.kept["factors"][number]), config.factor_change
            factor = clip(clip(factor, config.min_factor, config.max_factor), last * (1 - change), last * (1 + change))
            self.kept["factors"][number] = factor
        self._move(lr, update, (self.kept["coefficients"] * self.kept["factors"]).tolist())

    def _compare_variances(self, tensor: slice) -> float:
        """Return the largest (sqrt(v) + eps) / (sqrt(v') + eps) of a tensor."""
        frozen, fresh = (self.kept[name][tensor].sqrt().add_(self.config.eps) for name in ("variance", "fresh"))
        return float(frozen.div_(fresh).max())
