"""CIFAR-10 from the user's own copy, read and verified by torchvision."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sweep.run import UsageError
from trainers.data.store import Arrays, of_images

FOLDER = "cifar-10-batches-py"
FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")


def check(root: Path) -> None:
    """Say which files are missing, without loading torch.

    Raises:
        UsageError: where they are looked for and how to get them.
    """
    folder = (root / FOLDER).absolute()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise UsageError(
            f"dataset=cifar10: not found: {', '.join(missing)} in {folder}; valid is an extracted "
            f"cifar-10-python.tar.gz there (or data.root=DIR where it is), which "
            f"`python -m trainers.data --root {root} --download cifar10` fetches"
        )


def build(root: Path, download: bool = False) -> Arrays:
    """50,000 training and 10,000 test images of 3x32x32.

    torchvision compares every file with its published MD5 before it is unpickled.

    Raises:
        UsageError: files are missing or fail their checksum.
    """
    if not download:
        check(root)
    from trainers.vision import torchvision

    dataset = torchvision().datasets.CIFAR10
    try:
        parts = [dataset(str(root), train=train, download=download) for train in (True, False)]
    except RuntimeError as error:  # what torchvision raises for a wrong checksum
        raise UsageError(
            f"dataset=cifar10: {(root / FOLDER).absolute()}: {error} (a file fails its MD5 checksum)"
        ) from error
    images = [np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)) for part in parts]
    labels = [np.asarray(part.targets, dtype=np.int64) for part in parts]
    return of_images(images[0], labels[0], images[1], labels[1], classes=10)
