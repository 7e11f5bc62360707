"""The interface between data and training: which samples a worker sees when."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch

IGNORED = -100
"""A label that is none: what torch's cross-entropy leaves out."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """One worker's part of a global batch.

    `inputs` is (n, *shape), as the model takes it: float32, of text int64; `labels` (n,) int64, or (n, length) for
    text, where IGNORED stands at a place without a label. n may be 0: in the last batch of an epoch, where fewer
    samples than workers may be left, and anywhere where a partition has given this worker few samples. `total` is
    the number of labels in the whole global batch, above 0.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    total: int


class Feed(ABC):
    """The data of one worker.

    What is random in it is a function of the seed, the epoch and the sample: an epoch that is begun in its middle
    gives the same batches as one that was read from its beginning, and the global torch RNG is not touched.
    """

    shape: tuple[int, ...]
    """Of one sample."""
    classes: int
    """Width of the model's output."""
    samples: int
    """In the training set, of all workers together; of text, sequences of at most bptt tokens."""
    steps_per_epoch: int
    """The samples divided by the global batch size, rounded up."""

    @abstractmethod
    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch (from 1) for this worker, without the first `start`; as many on all workers."""

    @abstractmethod
    def test(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This worker's part of the test set: inputs and labels, batch by batch, every label on one worker.

        Of text, the rows of a batch go on where those of the one before have ended. A batch may have fewer rows
        than the one before, which are then its first ones.
        """
