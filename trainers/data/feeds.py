"""The interface between data and training: a feed gives a worker its batches in order."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from trainers.tasks.base import IGNORED, count_labels
from trainers.tasks.nested import map_tensors

__all__ = ["IGNORED", "Batch", "Feed"]


def find_kind(inputs: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape of a sample and the kind of the data (`Feed.kind`, other than text), given inputs of a batch."""
    if not isinstance(inputs, torch.Tensor):
        return (), "several"
    shape = tuple(inputs.shape[1:])
    if not inputs.is_floating_point():
        return shape, "integers"
    return shape, "images" if len(shape) == 3 else "features"


def find_task(labels: Any) -> str:
    """Return what the labels of a batch are for (`Feed.task`)."""
    if not isinstance(labels, torch.Tensor):
        return "custom"
    if labels.is_floating_point():
        return "regression"
    return "classification" if labels.dim() == 1 else "language"


@dataclasses.dataclass(frozen=True)
class Batch:
    """One worker's part of a global batch.

    `inputs` is (n, *shape) as the model takes it: float32, or int64 for text. `labels` is (n,) int64, or (n, length)
    for text, with IGNORED at positions without a label. Of an own data set either may be any tensor, or a tuple, list
    or dict of tensors, which have the samples as their first dimension. n may be 0: in the last batch of an epoch, if
    fewer samples than workers are left, and in any batch, if a partition has given this worker few samples. `total`,
    which is above 0, is the number of labels in the whole global batch; of an own data set, that of its samples.
    """

    inputs: Any
    labels: Any
    total: int

    @property
    def rows(self) -> int:
        """The number n of samples of this worker; for text, of streams."""
        return count_labels(self.labels, self.inputs)


class Feed(ABC):
    """One worker's source of batches and test samples.

    Its random numbers are functions of the seed, the epoch and the sample. So an epoch that is read from its middle has
    the same batches as one that is read from its beginning. torch's global generator is not used.
    """

    shape: tuple[int, ...]
    """The shape of one sample in the first epoch; () if its inputs are several tensors."""
    kind: str
    """`images` (channels, height, width), `features`, `text` (streams), `integers`, or `several` tensors."""
    task: str
    """What the labels are for: `classification` (n,) and `language` (n, length) by integers, `regression` by real
    numbers, or `custom` if they are several tensors."""
    classes: int
    """The width of the model's output; 0 if it is not known, for a model and data of the user's own."""
    samples: int
    """The number of training samples of all workers together; for text, of sequences of at most bptt tokens."""
    characters_per_token: float | None = None
    """The characters of a text's test set divided by its tokens; None if it has no characters."""
    least_loss: float | None = None
    """The mean loss, in nats, of a model that knows how the test set was drawn; None if nobody knows."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of a sample in each phase of the run."""
        return [self.shape]

    @abstractmethod
    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch (from 1), without the first `start`.

        All workers get the same number of batches: the samples divided by the epoch's global batch size, rounded up.
        """

    @abstractmethod
    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield inputs and labels of this worker's part of the test set, or with `whole` of all of it, in batches.

        The inputs are those for the evaluation after epoch `epoch`. Every label is in the part of one worker only.

        The rows of a text batch continue the rows of the previous batch. A batch may have fewer rows than the previous
        one: then it continues the first of them.
        """

    def try_out(self) -> None:  # noqa: B027 (prepared data were checked when they were made)
        """Read a few samples as in training, to find errors of the user's own data before ranks start.

        Raises:
            UsageError: they cannot be used.
        """

    def read_sample(self, count: int) -> tuple[Any, Any]:
        """Return inputs and labels of the first `count` test samples, to try a model with."""
        inputs, labels = next(iter(self.read_test_set(whole=True)))
        return map_tensors(lambda each: each[:count], inputs), map_tensors(lambda each: each[:count], labels)

    def close(self) -> None:  # noqa: B027 (most have nothing to do)
        """End processes and release resources other than memory; the feed can be used again."""
