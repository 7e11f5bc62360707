"""Synthetic images and text: deterministic, of any size, and learnable."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainers.data.arrays import from_images
from trainers.data.store import Prepared
from trainers.options.datasets import Synthetic

GRID = 4
"""Patterns have at most GRID x GRID cells, so that they outlast cropping, pooling and flipping of neighbours."""
CHUNK = 1 << 22
"""The number of pixels that are drawn at once: few enough for the memory of any machine."""
PATTERNS, TRAIN, TEST = range(3)


def build(options: Synthetic, root: Path, download: bool = False) -> Prepared:
    """Generate images: each class has a random pattern of coarse cells, and each image adds uniform noise per pixel.

    All arithmetic is on integers from generators with fixed seeds, so that all machines get the same bits. Sample i has
    class i mod `classes`.
    """
    random = np.random.RandomState([PATTERNS])
    cells = [min(GRID, size) for size in (options.height, options.width)]
    coarse = random.randint(32, 224, (options.classes, options.channels, *cells))
    rows, columns = (
        np.arange(size) * cell // size for size, cell in zip((options.height, options.width), cells, strict=True)
    )
    parts: list[np.ndarray] = []
    for part, count in ((TRAIN, options.train), (TEST, options.test)):
        labels = np.arange(count, dtype=np.int64) % options.classes
        images = np.empty((count, options.channels, options.height, options.width), dtype=np.uint8)
        each = max(1, CHUNK // images[0].size)
        for first in range(0, count, each):
            chosen = coarse[labels[first : first + each]]
            noise = np.random.RandomState([part, first]).randint(
                -options.noise, options.noise + 1, (len(chosen), *images.shape[1:]), dtype=np.int16
            )
            noise += chosen[:, :, rows[:, None], columns].astype(np.int16)
            images[first : first + each] = noise.clip(0, 255)
        parts += [images, labels]
    train_x, train_y, test_x, test_y = parts
    return from_images(train_x, train_y, test_x, test_y, options.classes).to_prepared()
