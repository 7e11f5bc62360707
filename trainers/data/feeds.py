"""The interface between data and training: which samples a worker sees when."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch

IGNORED = -100
"""The label of positions without a label, which torch's cross-entropy ignores."""


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
    """One worker's source of batches and test samples.

    What is random in it is a function of the seed, the epoch and the sample: an epoch that is begun in its middle
    gives the same batches as one that was read from its beginning, and the global torch RNG is not touched.
    """

    shape: tuple[int, ...]
    """The shape of one sample in the first epoch."""
    classes: int
    """The width of the model's output."""
    samples: int
    """The number of training samples of all workers together; for text, of sequences of at most bptt tokens."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of a sample in each phase of the run."""
        return [self.shape]

    @abstractmethod
    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch (from 1), without the first `start`.

        As many on all workers: the samples divided by the epoch's global batch size, rounded up.
        """

    @abstractmethod
    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield inputs and labels, batch by batch, of this worker's part of the test set or of the `whole` of it.

        The inputs are those shown after epoch `epoch`. Every label is on one worker.

        Of text, the rows of a batch go on where those of the one before have ended. A batch may have fewer rows
        than the one before, which are then its first ones.
        """

    def close(self) -> None:  # noqa: B027 (most have nothing to do)
        """End processes and release resources other than memory; the feed can be used again."""
