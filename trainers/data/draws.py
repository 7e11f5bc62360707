"""Random generators for data; their seed is computed from the run's seed, the epoch and the purpose.

numpy guarantees that RandomState gives the same numbers in all later versions.
"""

from __future__ import annotations

import numpy as np

ORDER, CROP_TOP, CROP_LEFT, FLIP, CUTOUT_TOP, CUTOUT_LEFT, ASSIGNMENT, SINGLE, SAMPLES = range(9)
"""What numbers are drawn for; each has a stream of its own, so that none changes with another's being switched off."""


def create_generator(seed: int, epoch: int, purpose: int, *more: int) -> np.random.RandomState:
    """Return the random generator for a purpose in an epoch (0: the whole run); `more` distinguishes samples or
    workers."""
    words = [seed & 0xFFFFFFFF, seed >> 32, epoch]
    if purpose != ORDER or more:
        words += [purpose, *more]
    return np.random.RandomState(words)
