"""Which samples a worker sees when: every sample once an epoch, on exactly one worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from trainers.data.feeds import Batch, Feed
from trainers.data.store import Arrays


class Normalise:
    """uint8 images to float32 with the mean and deviation of the training set."""

    def __init__(self, arrays: Arrays) -> None:
        self.shift = torch.tensor(arrays.mean, dtype=torch.float32).view(-1, 1, 1)
        self.scale = 1 / torch.tensor(arrays.std, dtype=torch.float32).view(-1, 1, 1)

    def __call__(self, images: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(images.astype(np.float32)).sub_(self.shift).mul_(self.scale)


class Shard(Feed):
    """A worker's share of the training set.

    The order of an epoch is one permutation for all workers, drawn from (seed, epoch); a global batch
    is a run of it and each worker takes a contiguous part, sizes differing by one at most. So the
    global batches are the same for any number of workers, and no remainder is dropped.
    """

    def __init__(self, arrays: Arrays, global_batch: int, seed: int, worker: int, workers: int) -> None:
        self.arrays, self.global_batch, self.seed = arrays, global_batch, seed
        self.worker, self.workers = worker, workers
        self.normalise = Normalise(arrays)
        self.shape, self.classes, self.samples = arrays.shape, arrays.classes, len(arrays.train_y)
        self.steps_per_epoch = -(-self.samples // global_batch)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        # RandomState's streams are frozen by numpy's policy: the same order with every later version
        random = np.random.RandomState([self.seed & 0xFFFFFFFF, self.seed >> 32, epoch])
        order = random.permutation(len(self.arrays.train_y))
        for first in range(start * self.global_batch, len(order), self.global_batch):
            batch = order[first : first + self.global_batch]
            low, high = (len(batch) * i // self.workers for i in (self.worker, self.worker + 1))
            mine = batch[low:high]
            yield Batch(
                self.normalise(self.arrays.train_x[mine]), torch.from_numpy(self.arrays.train_y[mine]), len(batch)
            )

    def test(self, batch: int = 512) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        total = len(self.arrays.test_y)
        low, high = (total * i // self.workers for i in (self.worker, self.worker + 1))
        for start in range(low, high, batch):
            part = slice(start, min(start + batch, high))
            yield self.normalise(self.arrays.test_x[part]), torch.from_numpy(np.array(self.arrays.test_y[part]))
