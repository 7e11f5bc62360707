"""A worker's replica of the model: gradients of batches, and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from trainers import models
from trainers.config import RunConfig
from trainers.data.feeds import Batch, Feed
from trainers.flat import Flat
from trainers.stopwatch import Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


class DifferentWeights(RuntimeError):
    """The workers do not have the same parameters."""


class Replica:
    """The model with its flat buffers, the same on all workers at the start.

    Raises:
        DifferentWeights: the workers did not start from the same parameters.
    """

    def __init__(self, config: RunConfig, shape: tuple[int, ...], classes: int, comm: MPI.Comm) -> None:
        self.comm = comm
        torch.manual_seed(config.seed)
        self.model = models.build(config.model, shape, classes)
        self.flat = Flat(self.model)
        self.require_same("the initial weights")
        torch.manual_seed(config.seed + 1 + comm.rank)  # dropout differs between workers

    def gradient(self, batch: Batch, watch: Stopwatch, ready: Callable[[], None] | None = None) -> tuple[float, float]:
        """Fill the flat gradient with this worker's part; returns its parts of the mean loss and accuracy.

        `ready` is called before the last backward: what that completes is the gradient to be exchanged.

        The part is scaled by workers / batch.total, so that the mean over the workers is the gradient of
        the global batch also where the workers' shares differ in size.
        """
        if not len(batch.labels):
            with watch("backward"):
                self.flat.gradients.zero_()
            return 0.0, 0.0
        with watch("forward"):
            logits, labels = scores(self.model(batch.inputs), batch.labels)
            loss = F.cross_entropy(logits, labels, reduction="sum") / batch.total
        with watch("backward"):
            self.flat.gradients.zero_()
            if ready is not None:
                ready()
            (loss * self.comm.size).backward()
            correct = (logits.detach().argmax(1) == labels).sum()
        return float(loss.detach()), float(correct) / batch.total

    @torch.no_grad()
    def evaluate(self, feed: Feed) -> tuple[float, float]:
        """Mean loss and accuracy over the test set, which the workers share among them.

        The running statistics of batch normalisation, which each worker has of its own batches, are
        averaged over the workers first, so that all judge the same model.
        """
        self._average_buffers()
        self.model.eval()
        sums = np.zeros(3)
        for inputs, targets in feed.test():
            logits, labels = scores(self.model(inputs), targets)
            sums += (
                float(F.cross_entropy(logits, labels, reduction="sum")),
                float((logits.argmax(1) == labels).sum()),
                len(labels),
            )
        total = np.empty_like(sums)
        self.comm.Allreduce(sums, total)
        return float(total[0] / total[2]), float(total[1] / total[2])

    def _average_buffers(self) -> None:
        buffers = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        if not buffers or self.comm.size == 1:
            return
        mine = torch.cat([buffer.flatten() for buffer in buffers]).numpy()
        total = np.empty_like(mine)
        self.comm.Allreduce(mine, total)
        mean = torch.from_numpy(total).div_(self.comm.size)
        for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(part.view_as(buffer))

    def require_same(self, what: str) -> None:
        """Compare the parameters of all workers.

        Raises:
            DifferentWeights: they are not the same to the bit.
        """
        mine = np.frombuffer(self.flat.digest(), dtype=np.uint8)
        everyone = np.empty((self.comm.size, len(mine)), dtype=np.uint8)
        self.comm.Allgather(mine, everyone)
        different = [worker for worker in range(self.comm.size) if (everyone[worker] != everyone[0]).any()]
        if different:
            raise DifferentWeights(f"{what} of workers {different} differ from those of worker 0")


def scores(outputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, classes) and labels (n,), also of a model of text, which says something about every position."""
    return outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1)
