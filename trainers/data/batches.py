"""The feed of a data set that is in memory: images and features."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from trainers.data.arrays import Arrays, read_rows
from trainers.data.augment import Augment, Plain
from trainers.data.feeds import Batch, Feed, find_kind, find_task
from trainers.data.partitions import Plan, cut
from trainers.options.datasets import Images
from trainers.options.sections import Partition

TEST_ELEMENTS = 1 << 24
"""The most elements of a batch of the test set; the model's activations take more memory than the batch."""


class Shard(Feed):
    """The feed of one worker for data in memory; a partition decides which samples it gets.

    Args:
        images: augmentation of the images; by default they are only normalised. Features are not changed.
        partition: by default iid, drawn anew in every epoch.

    Raises:
        UsageError: an option does not fit the data.
    """

    def __init__(
        self,
        arrays: Arrays,
        global_batch: int,
        seed: int,
        worker: int,
        workers: int,
        images: Images | None = None,
        partition: Partition | None = None,
    ) -> None:
        self.arrays, self.worker, self.workers = arrays, worker, workers
        self.shape, self.classes, self.samples = arrays.shape, arrays.classes, len(arrays.train_y)
        self.plan = Plan(arrays.train_y, global_batch, seed, workers, partition)
        self.show: Augment | Plain = Plain()
        if arrays.mean:
            options = Images() if images is None else images
            self.show = Augment(options, self.shape, arrays.mean, arrays.std, self.samples, seed)
        self.kind = find_kind(self.show.normalise(read_rows(arrays.train_x, slice(0, 1))))[1]
        self.task = find_task(torch.from_numpy(np.array(arrays.train_y[:1])))

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for rows, total in self.plan.list_batches(self.worker, epoch, start):
            inputs = self.show(read_rows(self.arrays.train_x, rows), rows, epoch)
            yield Batch(inputs, torch.from_numpy(np.asarray(self.arrays.train_y[rows])), total)

    def read_test_set(
        self, epoch: int = 1, batch: int | None = None, *, whole: bool = False
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        batch = batch or max(1, min(512, TEST_ELEMENTS // math.prod(self.shape)))
        mine = cut(len(self.arrays.test_y), *((1, 0) if whole else (self.workers, self.worker)))
        for start in range(mine.start, mine.stop, batch):
            part = slice(start, min(start + batch, mine.stop))
            inputs = self.show.normalise(read_rows(self.arrays.test_x, part))
            yield inputs, torch.from_numpy(np.array(self.arrays.test_y[part]))
