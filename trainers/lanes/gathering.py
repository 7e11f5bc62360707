"""The lane of payloads that every worker gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from trainers import sizes, staging
from trainers.lanes.base import MessageLane, Parcel
from trainers.sizes import ALIGNMENT, countable
from trainers.stopwatch import Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


def payload_sizes(lengths: Sequence[int]) -> npt.NDArray[np.uint32]:
    """The sizes as they travel."""
    return np.array([countable(size, sizes.LARGEST_SIZE, "bytes in a payload") for size in lengths], dtype=np.uint32)


class GatherLane(MessageLane):
    """Every worker gets every message and decodes all of them: each sends its own W - 1 times.

    Where the size of a payload depends on the data, the sizes (uint32 a unit) are gathered first; they count
    as part of the message. MPI counts words of ALIGNMENT bytes, so that messages of some GiB can be told.
    """

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        super().__init__(comm, watch)
        self._received = self.room(0)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        from mpi4py import MPI

        workers = self.comm.size
        fixed = all(p.compressor.payload_size(p.x.shape) is not None for p in self.parcels)
        own = payload_sizes(self.sizes)
        self._all_sizes = np.tile(own, (workers, 1))
        countable(self.used // ALIGNMENT, sizes.LARGEST_COUNT, f"words of {ALIGNMENT} bytes in a message")
        with self.watch("communicate"):
            if not fixed:
                self.comm.Allgather(own, self._all_sizes)
            lengths = (-(-self._all_sizes.astype(np.int64) // ALIGNMENT)).sum(axis=1)
            starts = np.concatenate(([0], lengths.cumsum()))
            what = f"words of {ALIGNMENT} bytes in the messages of all workers"
            countable(int(starts[-1]), sizes.LARGEST_COUNT, what)
            self._starts = starts * ALIGNMENT
            if self._starts[-1] > self._received.numel():
                self._received = self.room(int(self._starts[-1]))
            sent = [staging.buffer(self.message[: self.used]), self.used // ALIGNMENT, MPI.INT32_T]
            received = staging.buffer(self._received[: self._starts[-1]])
            if fixed:
                self.comm.Allgather(sent, [received, self.used // ALIGNMENT, MPI.INT32_T])
            else:
                self.comm.Allgatherv(sent, [received, lengths, starts[:-1], MPI.INT32_T])
        self.payload_bytes = self.used + (0 if fixed else own.nbytes)
        self.sent_bytes = (workers - 1) * self.payload_bytes
        yield from ()

    def decode(self) -> None:
        with self.watch("decode"):
            self.clear_gradients()
            for worker in range(self.comm.size):
                message = self._received[self._starts[worker] : self._starts[worker + 1]]
                self.add_decoded(message, self._all_sizes[worker].tolist(), 1.0 / self.comm.size)
