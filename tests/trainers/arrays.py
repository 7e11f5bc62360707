"""Small random data sets."""

from __future__ import annotations

import numpy as np

from trainers.data.arrays import Arrays, from_images


def random_arrays(train: int, test: int = 1) -> Arrays:
    """8x8 images of 17 levels with random labels of ten classes."""
    random = np.random.RandomState(0)
    images = [random.randint(0, 17, (samples, 1, 8, 8)).astype(np.uint8) for samples in (train, test)]
    labels = [random.randint(0, 10, samples).astype(np.int64) for samples in (train, test)]
    return from_images(images[0], labels[0], images[1], labels[1], classes=10)
