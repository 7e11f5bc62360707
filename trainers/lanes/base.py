"""The interface of a lane: one kind of collective with the message that goes through it.

An exchange puts every unit on one lane. When the units that were added can fill a part (`message_sizes.part_bytes`),
the exchange posts them as a part: a collective of its own, which a collective queue carries out. A small model has one
part a lane, so a step has the latency of one collective. A lane counts the bytes that MPI sends for it; a test compares
this number with Open MPI's own count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.decoding import Decoders
from trainers.lanes.parcel import MessagePart, Parcel
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import align


class Lane(ABC):
    """A lane: the units of one kind of collective. A step: `begin`, `add` for each unit, `communicate`, `decode`.

    `post` may be called between the `add`s. All lanes of an exchange post to the same queue, `collectives`. A lane
    without one has its own queue, which executes all collectives in `communicate`.

    Args:
        comm: the workers: a Group, or for a RoundsLane a communicator of MPI.
    """

    def __init__(self, comm: Any, watch: Stopwatch, collectives: CollectiveQueue | None = None) -> None:
        self.comm, self.watch = comm, watch
        self.collectives = CollectiveQueue(comm, watch) if collectives is None else collectives
        self.parcels: list[Parcel] = []
        self.payload_bytes = 0.0
        self.sent_bytes = 0.0

    def begin(self) -> None:
        """Forget the units of the previous step."""
        self.parcels.clear()
        self.payload_bytes = self.sent_bytes = 0.0

    @property
    def is_used(self) -> bool:
        """Whether units were added in this step."""
        return bool(self.parcels)

    @abstractmethod
    def add(self, parcel: Parcel) -> torch.Tensor | None:
        """Add a unit and return its payload; None if only `communicate` can produce the payload."""

    def post(self) -> None:
        """Start to send the units added since the last call; they travel during backward or later.

        The caller must not use their payloads any more.
        """
        return None

    @abstractmethod
    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """Complete the posted parts, send the rest, and yield the payloads that `add` could not return."""

    @abstractmethod
    def decode(self) -> None:
        """Write the mean of the workers' payloads into the gradient of every unit."""


class MessageLane(Lane):
    """A lane with all payloads in one message, one after another."""

    comm: Group

    def __init__(self, comm: Group, watch: Stopwatch, collectives: CollectiveQueue | None = None) -> None:
        super().__init__(comm, watch, collectives)
        self.message = self.allocate(0)
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
        """Allocate a message of `size` bytes. Pages that are never written need no memory."""
        if size > self.message.numel():
            self.message = self.allocate(0)  # the old one goes before the new one comes
            self.message = self.allocate(size)

    def allocate(self, size: int) -> torch.Tensor:
        """Allocate memory for a message that is sent or received."""
        return self.comm.allocate(size)

    def cut_part(self) -> MessagePart | None:
        """Return the units added since the last call as a part; None without units."""
        first, start = self._posted_units, self._posted_bytes
        if first == len(self.parcels):
            return None
        self._posted_units, self._posted_bytes = len(self.parcels), self.used
        return MessagePart(self.parcels[first:], self.sizes[first:], start, self.used)

    def add(self, parcel: Parcel) -> torch.Tensor:
        payload = parcel.compressor.compress(parcel.x, parcel.key, self.message[self.used :])
        self.parcels.append(parcel)
        self.sizes.append(payload.numel())
        end = self.used + payload.numel()
        self.used += align(payload.numel())
        self.message[end : self.used] = 0
        return payload

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.post()
        self.collectives.complete()
        yield from ()
