"""Random numbers of data: functions of the seed, the epoch and their purpose.

RandomState's streams are frozen by numpy's policy: the same numbers with every later version.
"""

from __future__ import annotations

import numpy as np

ORDER, CROP_TOP, CROP_LEFT, FLIP, CUTOUT_TOP, CUTOUT_LEFT, ASSIGNMENT, SINGLE = range(8)
"""What numbers are drawn for; each has a stream of its own, so that none changes with another's being switched off."""


def create_generator(seed: int, epoch: int, purpose: int, *more: int) -> np.random.RandomState:
    """Return the random generator for a purpose in an epoch (0: the whole run); `more` distinguishes samples or
    workers."""
    words = [seed & 0xFFFFFFFF, seed >> 32, epoch]
    if purpose != ORDER or more:
        words += [purpose, *more]
    return np.random.RandomState(words)
