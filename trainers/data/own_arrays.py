"""The user's own data as arrays: checks them, and gives a worker its batches from memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gradsweep.errors import UsageError
from trainers.config.run_config import RunConfig
from trainers.data.arrays import Arrays, from_images, read_rows
from trainers.data.batches import Shard
from trainers.data.feeds import Batch, find_task
from trainers.data.own_labels import count_classes, require_classes
from trainers.data.own_samples import TEST, TRAINING, find_not_finite, refuse
from trainers.options.datasets import Custom

TRIED_ELEMENTS = 1 << 26
"""The most numbers of an array that are looked at before ranks start."""


def is_array(value: Any) -> bool:
    """Tell whether a value is an array, a tensor or a sparse matrix of scipy."""
    return isinstance(value, (np.ndarray, torch.Tensor)) or hasattr(value, "tocsr")


def is_pair(part: Any) -> bool:
    """Tell whether a value is a pair (inputs, targets) of arrays."""
    return isinstance(part, (tuple, list)) and len(part) == 2 and all(map(is_array, part))


def build_arrays(options: Custom, train: Sequence[Any], test: Sequence[Any]) -> Arrays:
    """Return the arrays of a target that returns (inputs, targets) of each set.

    Raises:
        UsageError: they do not fit together, or are no numbers.
    """
    (train_x, train_y), (test_x, test_y) = (_convert_pair(options, *each) for each in ((TRAINING, train), (TEST, test)))
    for name, one, other in (("inputs", train_x, test_x), ("targets", train_y, test_y)):
        if one.shape[1:] != other.shape[1:] or one.dtype.kind != other.dtype.kind:
            shown = [
                f"{'x'.join(map(str, each.shape[1:])) or 'single numbers'} of {each.dtype}" for each in (one, other)
            ]
            raise refuse(
                options, f"the same shape and type in both sets: {name} to train have {shown[0]}, to test {shown[1]}"
            )
    task = find_task(torch.from_numpy(train_y[:1]))
    classes = count_classes(options, task, train_y, test_y)
    if train_x.dtype != np.uint8:
        return Arrays(train_x, train_y, test_x, test_y, classes)
    if train_x.ndim != 4 or (train_x.shape[3] in (1, 3, 4) and train_x.shape[1] > 4):
        shape = "x".join(map(str, train_x.shape[1:]))
        raise refuse(
            options, f"channels x height x width for images of uint8, not {shape}; other inputs are of another type"
        )
    return from_images(train_x, train_y, test_x, test_y, classes)


def _convert_pair(options: Custom, name: str, pair: Sequence[Any]) -> tuple[Any, np.ndarray]:
    """Return inputs (N, ...), an array or a CSR matrix, and targets in int64 or float32."""
    inputs, targets = (
        _convert(options, f"{what} of {name}", value) for what, value in zip(("inputs", "targets"), pair, strict=True)
    )
    if inputs.shape[0] != targets.shape[0]:
        raise refuse(
            options,
            f"as many targets as inputs: {name} has {inputs.shape[0]} inputs and {targets.shape[0]} targets",
        )
    if inputs.shape[0] < 1:
        raise refuse(options, f"data sets with one sample or more: {name} has 0")
    if inputs.ndim < 2:
        raise refuse(options, f"inputs (samples, features) or of more dimensions: those of {name} have one")
    targets = read_rows(targets, slice(None))
    if targets.dtype.kind == "f":
        return inputs, targets.astype(np.float32)
    single = targets.ndim == 2 and targets.shape[1] == 1
    return inputs, (targets[:, 0] if single else targets).astype(np.int64)


def _convert(options: Custom, name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    elif not isinstance(value, np.ndarray):
        value = value.tocsr()
    if value.dtype.kind not in "fiub" or not value.ndim:
        raise refuse(options, f"arrays of numbers: {name} have dtype {value.dtype} and {value.ndim} dimensions")
    return value


class ArrayFeed(Shard):
    """The feed of one worker for the user's own arrays.

    Raises:
        UsageError: an option does not fit the data; while reading, a batch has a nan or inf.
    """

    def __init__(self, arrays: Arrays, config: RunConfig, worker: int, workers: int) -> None:
        require_classes(config.partition, find_task(torch.from_numpy(arrays.train_y[:1])))
        super().__init__(arrays, config.global_batch, config.seed, worker, workers, None, config.partition)
        self.options = config.dataset

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(super().read_epoch(epoch, start), start):
            bad = [row for part in (batch.inputs, batch.labels) if (row := find_not_finite(part)) is not None]
            if bad:
                rows, _ = next(self.plan.list_batches(self.worker, epoch, number))
                raise self._refuse(TRAINING, int(rows[bad[0]]))
            yield batch

    def try_out(self) -> None:
        arrays = self.arrays
        for name, *pair in ((TRAINING, arrays.train_x, arrays.train_y), (TEST, arrays.test_x, arrays.test_y)):
            for part in pair:
                self._check_finite(name, part)

    def _check_finite(self, name: str, part: Any) -> None:
        each = max(1, math.prod(part.shape[1:]))
        step = max(1, (1 << 20) // each)
        for first in range(0, min(part.shape[0], max(1, TRIED_ELEMENTS // each)), step):
            piece = torch.from_numpy(np.array(read_rows(part, slice(first, first + step))))
            if (bad := find_not_finite(piece)) is not None:
                raise self._refuse(name, first + bad)

    def _refuse(self, name: str, row: int) -> UsageError:
        return refuse(self.options, f"finite numbers: sample {row} of {name} has nan or inf")
