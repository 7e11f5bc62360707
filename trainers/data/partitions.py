"""Assign samples to workers and batches: in an epoch, every sample is in one batch of one worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradsweep.errors import bad_value
from trainers.data import draws
from trainers.options.sections import Partition


def cut(total: int, parts: int, part: int) -> slice:
    """Return the bounds of part number `part` if `total` is cut into consecutive parts whose sizes differ by at most
    1."""
    return slice(total * part // parts, total * (part + 1) // parts)


def draw_dirichlet(labels: np.ndarray, alpha: float, workers: int, random: np.random.RandomState) -> list[np.ndarray]:
    """Return the samples of each worker: each class is shuffled and cut in proportions drawn from Dirichlet(alpha).

    As in Yurochkin et al. (ICML 2019). A worker that would have no sample gets one from the worker with the most; the
    paper repeats the draw until every worker has one.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        # of Gamma variables in logarithms, which are not all zero for a small alpha: Gamma(a) = Gamma(a + 1) U^(1/a)
        logs = np.log(random.gamma(alpha + 1, size=workers)) + np.log1p(-random.uniform(size=workers)) / alpha
        shares = np.exp(logs - logs.max())
        ends = np.floor(np.cumsum(shares / shares.sum()) * len(members) + 0.5).astype(np.int64)
        ends[-1] = len(members)
        for part, piece in zip(parts, np.split(members, ends[:-1]), strict=True):
            part.append(piece)
    whole = [np.concatenate(part) for part in parts]
    for worker in range(workers):
        if not len(whole[worker]):
            largest = max(range(workers), key=lambda other: len(whole[other]))
            whole[worker], whole[largest] = whole[largest][-1:], whole[largest][:-1]
    return whole


class Plan:
    """The rows of the training set in every batch of every worker.

    With reshuffling (by default with `iid`), the samples of an epoch are in the order of a permutation drawn from
    (seed, epoch). A global batch is a contiguous piece of this order, of which each worker takes a contiguous part,
    with sizes that differ by one at most. So the global batches are the same for any number of workers.

    Without, a worker keeps its samples from epoch to epoch, and only their order changes. They are cut into as many
    batches as an epoch has steps, with sizes that differ by one at most. So workers with more samples have more of each
    global batch, and all workers know all sizes.

    Args:
        labels: (N,) of the training set.

    Raises:
        UsageError: there are fewer samples than a global batch has.
    """

    def __init__(
        self, labels: np.ndarray, global_batch: int, seed: int, workers: int, options: Partition | None = None
    ) -> None:
        self.options = Partition() if options is None else options
        self.samples, self.global_batch = len(labels), global_batch
        self.seed, self.workers = seed, workers
        self.steps = -(-self.samples // global_batch)
        self.parts = None if self.options.reshuffled else self._assign(labels)

    def _assign(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return the samples of each worker for the whole run."""
        if self.samples < self.workers:
            raise bad_value("workers", self.workers, f"at most {self.samples}: every worker needs a sample of its own")
        random = draws.create_generator(self.seed, 0, draws.ASSIGNMENT)
        if self.options.scheme == "dirichlet":
            return draw_dirichlet(np.asarray(labels), self.options.alpha, self.workers, random)
        if self.options.scheme == "iid":
            order = random.permutation(self.samples)
        elif self.options.scheme == "label":
            order = np.argsort(labels, kind="stable")
        else:
            order = np.arange(self.samples)
        return [order[cut(self.samples, self.workers, worker)] for worker in range(self.workers)]

    def list_batches(self, worker: int, epoch: int, start: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """Yield this worker's rows in each global batch of an epoch (from 1), with the batch's size; skip the first
        `start`."""
        if self.parts is None:
            order = draws.create_generator(self.seed, epoch, draws.ORDER).permutation(self.samples)
            for first in range(start * self.global_batch, self.samples, self.global_batch):
                batch = order[first : first + self.global_batch]
                yield batch[cut(len(batch), self.workers, worker)], len(batch)
            return
        mine = draws.create_generator(self.seed, epoch, draws.ORDER, worker).permutation(self.parts[worker])
        for step in range(start, self.steps):
            runs = [cut(len(part), self.steps, step) for part in self.parts]
            yield mine[runs[worker]], sum(run.stop - run.start for run in runs)
