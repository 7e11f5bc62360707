"""Read batches of samples in processes of their own (`data.loaders`), or in the rank itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from trainers.mpi.process import die_with_parent

Places = tuple[int, np.ndarray]
"""Where the samples of a batch are: epoch (from 1) and rows (n,) of the training set, or 0 and rows of the test set."""


class _Batches(Dataset[Any]):
    """A data set of whole batches, each of which `read` returns, given its places."""

    def __init__(self, read: Callable[[Places], Any]) -> None:
        self.read = read

    def __getitem__(self, places: Places) -> Any:
        return self.read(places)


def _leave(batch: Any) -> Any:
    return batch


def _die_with_rank(loader: int) -> None:
    die_with_parent()


class Loaders:
    """Reads batches in `count` processes, or with 0 in this one.

    Processes are started by spawn, not by fork: a copy of a process that has initialised MPI (or CUDA) is not safe to
    go on with. They stay until `close`, and have the cores of their rank.

    Args:
        read: returns the batch at some places; it is pickled for the processes.
    """

    def __init__(self, read: Callable[[Places], Any], count: int) -> None:
        self._read, self._count = read, count
        self._places: dict[bool, list[Places]] = {False: [], True: []}  # of training, and of the test set
        self._loaders: dict[bool, DataLoader[Any]] = {}

    def read(self, batches: Sequence[Places]) -> Iterator[Any]:
        """Yield what `read` returns for each batch, in order.

        A later call ends an earlier one, except that the test set can be read within an epoch: it has processes of its
        own.
        """
        if not self._count or not batches:
            return map(self._read, batches)
        of_test = batches[0][0] == 0
        self._places[of_test][:] = batches
        if of_test not in self._loaders:
            self._loaders[of_test] = DataLoader(
                _Batches(self._read),
                batch_size=None,
                sampler=self._places[of_test],  # read anew whenever an epoch begins
                collate_fn=_leave,
                num_workers=self._count,
                multiprocessing_context="spawn",
                persistent_workers=True,
                worker_init_fn=_die_with_rank,
                generator=torch.Generator(),  # torch's global one is not to be touched
            )
        return iter(self._loaders[of_test])

    def close(self) -> None:
        """End the processes; a later `read` starts new ones."""
        self._loaders.clear()
