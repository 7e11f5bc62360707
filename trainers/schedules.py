"""Learning-rate schedules."""

from __future__ import annotations

import math
from typing import Any

from trainers.options import schedules as options


def factor(config: options.Constant | options.Cosine, step: int, steps: int, steps_per_epoch: int) -> float:
    """What the base learning rate is multiplied with in `step` (from 1) of `steps`.

    Warm-up rises linearly and reaches 1 at its last step; the cosine reaches 0 just after the last step.
    """
    warmup = round(config.warmup_epochs * steps_per_epoch)
    if step <= warmup:
        return step / warmup
    if isinstance(config, options.Constant):
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - 1 - warmup) / (steps - warmup)))


class Schedule:
    """The learning rate of every step of a run.

    Args:
        base: the rate that the optimizer was given.
        steps: optimizer steps of the whole run.
    """

    def __init__(self, config: Any, base: float, steps: int, steps_per_epoch: int) -> None:
        self.config, self.base = config, base
        self.steps, self.steps_per_epoch = steps, steps_per_epoch

    def rate(self, step: int) -> float:
        """The learning rate in `step` (from 1)."""
        return self.base * factor(self.config, step, self.steps, self.steps_per_epoch)

    def observe(self, test_loss: float) -> None:
        """Called after every evaluation, on all workers with the same number."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """What is remembered of evaluations."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        return None
