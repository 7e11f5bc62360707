"""Learning-rate schedules: a factor on the base rate, as a function of the step."""

from __future__ import annotations

import math

from trainers import config as options


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
