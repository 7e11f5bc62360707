"""The feed of the user's own map-style data sets."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradsweep.errors import UsageError, bad_value
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch, Feed, find_kind, find_task
from trainers.data.loaders import Loaders
from trainers.data.own_labels import count_classes, find_labels, require_classes
from trainers.data.own_samples import COLLATE, OwnSets, Samples, refuse
from trainers.data.partitions import Plan, cut
from trainers.options.sections import Partition
from trainers.tasks.nested import map_tensors

READ_FOR_LABELS = 10_000
"""The most samples of which each rank reads all, if nothing else tells the labels."""
TRIED_BATCHES, TRIED_SAMPLES = 2, 128
"""How many batches are read before ranks start, and the most samples of each."""


class SampleFeed(Feed):
    """The feed of one worker for the user's own data sets, which are read in `data.loaders` processes.

    Raises:
        UsageError: the samples or an option do not fit; while reading, a sample cannot be used.
    """

    def __init__(self, sets: OwnSets, config: RunConfig, worker: int, workers: int) -> None:
        self.sets, self.options, self.worker, self.workers = sets, sets.options, worker, workers
        self.samples, self.tests = len(sets.train), len(sets.test)
        self._source = Samples(sets, config.seed)
        inputs, labels = self._source.read_now((1, _find_ends(self.samples)))
        self._empty = map_tensors(lambda tensor: tensor[:0], (inputs, labels))
        (self.shape, self.kind), self.task = find_kind(inputs), find_task(labels)
        tests, test_labels = self._source.read_now((0, _find_ends(self.tests)))
        self._require_same_kind(tests, test_labels)
        every = self._find_labels(config, labels)
        self.classes = self._count_classes(every, labels, test_labels)
        self._source = Samples(sets, config.seed, 0 if self.task == "regression" else self.classes)
        classes = every if config.partition.by_class else None
        self.plan = Plan(
            np.zeros(self.samples) if classes is None else classes,
            config.global_batch,
            config.seed,
            workers,
            config.partition,
        )
        self._each = math.ceil(config.global_batch / workers / config.batch.accumulate)
        self._loaders, self._loader_count = Loaders(self._source.read, config.data.loaders), config.data.loaders

    def _require_same_kind(self, inputs: Any, labels: Any) -> None:
        """Check that samples of the test set are like those of the training set.

        Raises:
            UsageError: they are of another kind.
        """
        (_, kind), task = find_kind(inputs), find_task(labels)
        if (kind, task) != (self.kind, self.task):
            fault = f"{self.kind} for {self.task} to train, {kind} for {task} to test"
            raise refuse(self.options, f"samples of the same kind in both sets: they have {fault}")

    def _find_labels(self, config: RunConfig, labels: Any) -> np.ndarray | None:
        """Return all training labels, given those at the ends of the set: (N,), or of a language all in a row.

        Raises:
            UsageError: they are needed, but there are too many to read.

        Returns:
            None if they are not needed.
        """
        require_classes(config.partition, self.task)
        if self.task == "classification" and (told := find_labels(self.sets.train, labels)) is not None:
            return told
        counted = self.task in ("classification", "language") and self.options.classes is None
        return self._read_labels(config.partition) if counted or config.partition.by_class else None

    def _count_classes(self, every: np.ndarray | None, labels: Any, test_labels: Any) -> int:
        """Return the width of the model's output.

        Args:
            every: all training labels, if they are known.
            labels, test_labels: of samples at the ends of both sets.
        """
        if self.task == "regression":
            return count_classes(self.options, self.task, labels.numpy())
        if every is None:
            return self.options.classes or 0
        tested = find_labels(self.sets.test, test_labels) if self.task == "classification" else None
        return count_classes(self.options, self.task, *[each for each in (every, tested) if each is not None])

    def _read_labels(self, partition: Partition) -> np.ndarray:
        """Read the labels of all training samples.

        Raises:
            UsageError: there are many.
        """
        if self.samples > READ_FOR_LABELS:
            many = f"with {self.samples} samples, more than {READ_FOR_LABELS}, not all are read to find their labels"
            if partition.by_class:
                valid = f"iid or contiguous, or a training set with an attribute `targets`: {many}"
                raise bad_value("partition.scheme", partition.scheme, valid)
            raise bad_value("dataset.classes", None, f"the number of classes: {many}")
        pieces = np.array_split(np.arange(self.samples), -(-self.samples // 64))
        return np.concatenate([self._source.read_now((1, rows))[1].numpy().reshape(-1) for rows in pieces])

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        batches = list(self.plan.list_batches(self.worker, epoch, start))
        found = self._loaders.read([(epoch, rows) for rows, _ in batches])
        for batch, (_, total) in zip(found, batches, strict=True):
            yield Batch(*self._accept(batch), total)

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[Any, Any]]:
        mine = cut(self.tests, *((1, 0) if whole else (self.workers, self.worker)))
        firsts = range(mine.start, mine.stop, self._each)
        yield from map(
            self._accept,
            self._loaders.read([(0, np.arange(first, min(first + self._each, mine.stop))) for first in firsts]),
        )

    def read_sample(self, count: int) -> tuple[Any, Any]:
        return self._source.read_now((0, np.arange(min(count, self.tests))))

    def _accept(self, batch: Any) -> tuple[Any, Any]:
        if isinstance(batch, UsageError):
            raise batch
        inputs, labels = self._empty if batch is None else batch
        return inputs, labels

    def try_out(self) -> None:
        if self._loader_count:
            self._check_picklable()
        for number, (rows, _) in zip(range(TRIED_BATCHES), self.plan.list_batches(self.worker, 1), strict=False):
            del number
            self._accept(self._source.read((1, rows[:TRIED_SAMPLES])))
        self._accept(self._source.read((0, np.arange(min(self.tests, self._each, TRIED_SAMPLES)))))

    def _check_picklable(self) -> None:
        """Check that loader processes can get the data sets and the collate function.

        Raises:
            UsageError: names the one that cannot be pickled.
        """
        options = self.options
        valid = f"{{}} that can be pickled for data.loaders={self._loader_count}, or data.loaders=0: {{}}"
        if options.collate is not None and (fault := explain_unpicklable(self.sets.collate)) is not None:
            raise bad_value(COLLATE, options.collate, valid.format("a function", fault))
        for part in (self.sets.train, self.sets.test):
            if (fault := explain_unpicklable(part)) is not None:
                raise refuse(options, valid.format("data sets", fault))

    def close(self) -> None:
        self._loaders.close()


def _find_ends(count: int) -> np.ndarray:
    """Return the first and the last row of a data set."""
    return np.array(sorted({0, count - 1}))


class _Nothing:
    """A file that keeps nothing: large data sets are not to be copied to find out whether they can be."""

    def write(self, data: Any) -> int:
        return len(data)


def explain_unpicklable(value: Any) -> str | None:
    """Return why an object cannot be pickled, in one line; None if it can be."""
    try:
        pickle.Pickler(_Nothing(), protocol=5).dump(value)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None
