"""The handwritten digits bundled with scikit-learn (UCI Optical Recognition of Handwritten Digits)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainers.data.arrays import from_images
from trainers.data.store import Prepared

TEST_SHARE = 0.2


def build(options: Any = None, root: Path | None = None, download: bool = False) -> Prepared:
    """Return 1,797 images of 8x8 with 17 grey levels, in a fixed stratified split: 80 % for training, 20 % for
    testing."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels.astype(np.int64), test_size=TEST_SHARE, random_state=0, stratify=labels
    )
    return from_images(train_x, train_y, test_x, test_y, classes=10).to_prepared()
