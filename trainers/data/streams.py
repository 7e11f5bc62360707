"""The feed of a text, cut into streams of which every step reads the next tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradsweep.errors import bad_value
from trainers.data.feeds import IGNORED, Batch, Feed
from trainers.data.partitions import cut


class Streams:
    """A text cut into streams for a language model.

    All tokens but the first have to be predicted. They are cut in order into a contiguous piece for each stream; the
    first pieces are longer by one if the number is not divisible. So every token is predicted exactly once, also at the
    cuts.

    Args:
        tokens: (T,) of the text.
        streams: number of streams of all workers together.
        bptt: tokens that a step reads of each stream.
    """

    def __init__(self, tokens: np.ndarray, streams: int, bptt: int) -> None:
        self.tokens, self.bptt, self.streams = tokens, bptt, streams
        each, self.longer = divmod(len(tokens) - 1, streams)
        self.length = each + (self.longer > 0)
        self.even = each
        numbers = np.arange(streams)
        self.starts = numbers * each + np.minimum(numbers, self.longer)
        self.steps = -(-self.length // bptt)

    def read(self, rows: slice, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels (n, length) of the streams `rows` in a step (from 0).

        Labels after the end of a stream are IGNORED.
        """
        first, last = step * self.bptt, min((step + 1) * self.bptt, self.length)
        places = self.starts[rows, None] + np.arange(first, last)
        inputs, labels = self.tokens[places].astype(np.int64), self.tokens[self._within(places + 1)].astype(np.int64)
        if self.longer and last > self.even:
            ended = np.arange(self.streams)[rows] >= self.longer
            labels[ended, self.even - first :] = IGNORED
        return inputs, labels

    def _within(self, places: np.ndarray) -> np.ndarray:
        return np.minimum(places, len(self.tokens) - 1)  # the last stream's ignored place lies behind the end

    def count_labels(self, step: int) -> int:
        """Return the number of labels of all streams in a step."""
        first, last = step * self.bptt, min((step + 1) * self.bptt, self.length)
        return (min(last, self.even) - first) * self.streams + (self.longer if last > self.even else 0)


class TextFeed(Feed):
    """The feed of one worker for a text; the global batch has as many streams as samples.

    Nothing is random: a worker reads the same neighbouring streams in every epoch, from their beginning to their end,
    so that a model can carry its hidden state from step to step.

    Raises:
        UsageError: the text is too short for so many streams.
    """

    kind, task = "text", "language"

    def __init__(
        self,
        train: np.ndarray,
        test: np.ndarray,
        classes: int,
        bptt: int,
        global_batch: int,
        worker: int,
        workers: int,
    ) -> None:
        if len(train) - 1 < global_batch:
            raise bad_value(
                "batch.size",
                f"{global_batch} (of all workers together)",
                f"at most {len(train) - 1}, as the text has {len(train)} tokens",
            )
        self.shape, self.classes, self.bptt = (bptt,), classes, bptt
        self.worker, self.workers = worker, workers
        self.train = Streams(train, global_batch, bptt)
        self.held_out = Streams(test, min(global_batch, len(test) - 1), bptt)
        self.samples = self.train.steps * global_batch
        self.mine = cut(global_batch, workers, worker)

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for step in range(start, self.train.steps):
            inputs, labels = self.train.read(self.mine, step)
            yield Batch(torch.from_numpy(inputs), torch.from_numpy(labels), self.train.count_labels(step))

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        mine = cut(self.held_out.streams, *((1, 0) if whole else (self.workers, self.worker)))
        for step in range(self.held_out.steps if mine.stop > mine.start else 0):
            inputs, labels = self.held_out.read(mine, step)
            even = int((labels[-1] != IGNORED).sum())  # the streams that are longer by one are the first ones
            longer = int((labels[:, -1] != IGNORED).sum())
            if even:
                yield torch.from_numpy(inputs[:, :even]), torch.from_numpy(labels[:, :even])
            if even < labels.shape[1] and longer:
                yield torch.from_numpy(inputs[:longer, even:]), torch.from_numpy(labels[:longer, even:])
