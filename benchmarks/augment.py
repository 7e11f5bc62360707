"""Images a second that one core augments, at CIFAR's shape: each operation, and what CIFAR-10 is usually given.

    python benchmarks/augment.py [BATCH]

The batches are those of two epochs of 10,000 random images in memory, as a feed gives them. Variants take turns, batch
by batch; figures are medians. What is drawn at the beginning of an epoch (a millisecond) is not in them.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from trainers.data.arrays import from_images  # noqa: E402
from trainers.data.batches import Shard  # noqa: E402
from trainers.options.datasets import Images  # noqa: E402

VARIANTS = {
    "normalise": Images(),
    "flip": Images(flip=True),
    "crop, zeros": Images(crop_padding=4, padding_mode="constant"),
    "crop, reflected": Images(crop_padding=4),
    "cutout": Images(cutout=8),
    "crop, flip (cifar10)": Images(crop_padding=4, flip=True),
    "crop, flip, cutout (cifar10_cutout)": Images(crop_padding=4, flip=True, cutout=8),
}
SAMPLES = 10_000


def main() -> int:
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    torch.set_num_threads(1)
    images = np.random.RandomState(0).randint(0, 256, (SAMPLES, 3, 32, 32)).astype(np.uint8)
    labels = np.arange(SAMPLES) % 10
    arrays = from_images(images, labels, images[:1], labels[:1], 10)
    feeds = [Shard(arrays, batch, 0, 0, 1, options) for options in VARIANTS.values()]
    times: list[list[float]] = [[] for _ in feeds]
    for epoch in (1, 2):
        epochs = [feed.read_epoch(epoch) for feed in feeds]
        for _ in range(SAMPLES // batch):
            for one, took in zip(epochs, times, strict=True):
                start = time.perf_counter()
                next(one)
                took.append(time.perf_counter() - start)
    plain = statistics.median(times[0])
    print(f"| batches of {batch}, one core | images/s | time, normalise = 1 |\n|---|---:|---:|")
    for name, took in zip(VARIANTS, times, strict=True):
        median = statistics.median(took)
        print(f"| {name} | {batch / median:,.0f} | {median / plain:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
