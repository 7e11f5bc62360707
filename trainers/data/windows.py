"""The feed of a text for models without a hidden state: pieces from random places, as nanoGPT reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradsweep.errors import bad_value
from trainers.data.draws import ORDER, create_generator
from trainers.data.feeds import Batch, Feed
from trainers.data.partitions import cut


class WindowFeed(Feed):
    """The feed of one worker for a text; a sample is a window, `bptt` tokens with the token after each as its label.

    The windows of a step begin at places that are drawn uniformly, with the seed, the epoch and the step: so they do
    not depend on the number of workers, which share them. An epoch has as many steps as would read the text once. The
    test set is the text's consecutive windows, whose last tokens are left out where they fill no window.

    Args:
        train, test: (T,) tokens of the two parts.
        classes: the number of different tokens.
        bptt: the number of tokens of a window.
        test_windows: the number of windows to test with, at equal distances; None: all.
        pieces: the number of pieces in which a worker computes its windows of a step; a test batch is as large as one.

    Raises:
        UsageError: a part is shorter than a window, or has fewer windows than `test_windows`.
    """

    kind, task = "text", "language"

    def __init__(
        self,
        train: np.ndarray,
        test: np.ndarray,
        classes: int,
        bptt: int,
        global_batch: int,
        seed: int,
        worker: int,
        workers: int,
        test_windows: int | None = None,
        pieces: int = 1,
    ) -> None:
        shortest = min(len(train), len(test))
        if shortest <= bptt:
            raise bad_value("dataset.bptt", bptt, f"at most {shortest - 1}: a part of the text has {shortest} tokens")
        there = (len(test) - 1) // bptt
        if test_windows is not None and test_windows > there:
            raise bad_value("dataset.test_windows", test_windows, f"at most {there}, or null for all")
        self.shape, self.classes, self.bptt = (bptt,), classes, bptt
        self.text, self.held_out, self.global_batch, self.seed = train, test, global_batch, seed
        self.worker, self.workers = worker, workers
        self.most = -(-global_batch // (workers * pieces))
        self.steps = -(-((len(train) - 1) // bptt) // global_batch)
        self.samples = self.steps * global_batch
        self.mine = cut(global_batch, workers, worker)
        self.tested = np.arange(test_windows or there) * there // (test_windows or there) * bptt

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for step in range(start, self.steps):
            generator = create_generator(self.seed, epoch, ORDER, step)
            places = generator.randint(len(self.text) - self.bptt, size=self.global_batch)
            yield Batch(*self._read(self.text, places[self.mine]), self.global_batch * self.bptt)

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        mine = self.tested[cut(len(self.tested), *((1, 0) if whole else (self.workers, self.worker)))]
        for first in range(0, len(mine), self.most):
            yield self._read(self.held_out, mine[first : first + self.most])

    def _read(self, text: np.ndarray, places: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and labels (n, bptt) of the windows that begin at `places`."""
        windows = torch.from_numpy(text[places[:, None] + np.arange(self.bptt + 1)].astype(np.int64))
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
