"""How the payloads of one step travel: a lane is one kind of collective with the message that goes through it.

An exchange puts every unit on one lane, and posts what a lane has got whenever that can be as much as PART_BYTES:
such a part is a collective of its own, which a collective queue carries out. Small models have one part a lane, and so the
latency of one collective a step. A lane counts what it sends as MPI does (a test holds it against Open MPI's own
count).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.decoding import Decoders
from trainers.lanes.parcel import Parcel, Part
from trainers.mpi import staging
from trainers.mpi.message_sizes import aligned

if TYPE_CHECKING:
    from mpi4py import MPI


class Lane(ABC):
    """One kind of collective. A step: `begin`, `add` for each of its units, `communicate`, `decode`.

    `post` may be called between the `add`s. `collectives` is the queue of what is posted; all lanes of an exchange have the
    same one. Without, the lane has one that does everything in `communicate`.
    """

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, collectives: CollectiveQueue | None = None) -> None:
        self.comm, self.watch = comm, watch
        self.collectives = CollectiveQueue(comm, watch) if collectives is None else collectives
        self.parcels: list[Parcel] = []
        self.payload_bytes = 0.0
        self.sent_bytes = 0.0

    def begin(self) -> None:
        """Forget the units of the step before."""
        self.parcels.clear()
        self.payload_bytes = self.sent_bytes = 0.0

    @abstractmethod
    def add(self, parcel: Parcel) -> torch.Tensor | None:
        """Take a unit; returns its payload, or None where that is known only after `communicate`."""

    def post(self) -> None:
        """What has been added since the last call may leave: it is sent while backward goes on, or later.

        By then nobody needs the payloads of these units any more.
        """
        return None

    @abstractmethod
    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """Complete what was posted and move the rest. Gives the payloads that `add` could not give yet."""

    @abstractmethod
    def decode(self) -> None:
        """Put the mean of what the workers have sent into the gradient of every unit."""


class MessageLane(Lane):
    """A lane whose payloads stand one behind the other in one message."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, collectives: CollectiveQueue | None = None) -> None:
        super().__init__(comm, watch, collectives)
        self.message = self.room(0)
        self.decoders = Decoders()
        self.sizes: list[int] = []
        self.used = 0
        self._posted_units = self._posted_bytes = 0

    def begin(self) -> None:
        super().begin()
        self.sizes.clear()
        self.used = 0
        self._posted_units = self._posted_bytes = 0

    def reserve(self, size: int) -> None:
        """Have room for a message of `size` bytes. What is never written to takes no memory."""
        if size > self.message.numel():
            self.message = self.room(0)  # the old one goes before the new one comes
            self.message = self.room(size)

    def room(self, size: int) -> torch.Tensor:
        """New memory for a message that MPI sends or receives."""
        return staging.message(size)

    def cut(self) -> Part | None:
        """The units that were added since the last call; None where there are none."""
        first, start = self._posted_units, self._posted_bytes
        if first == len(self.parcels):
            return None
        self._posted_units, self._posted_bytes = len(self.parcels), self.used
        return Part(self.parcels[first:], self.sizes[first:], start, self.used)

    def add(self, parcel: Parcel) -> torch.Tensor:
        payload = parcel.compressor.compress(parcel.x, parcel.key, self.message[self.used :])
        self.parcels.append(parcel)
        self.sizes.append(payload.numel())
        end = self.used + payload.numel()
        self.used += aligned(payload.numel())
        self.message[end : self.used] = 0
        return payload
