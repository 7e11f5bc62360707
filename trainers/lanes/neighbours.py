"""The lane that sends a worker's payloads to its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from compressors import CorruptPayload
from compressors.message import Message
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import MessageLane
from trainers.lanes.bundles import find_fixed_sizes
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.gathering import encode_sizes
from trainers.lanes.parcel import Parcel
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import align, count_words
from trainers.topology.mixing import Mixing


class NeighbourMessage(NamedTuple):
    """The message of a neighbour or of this worker, with its sender's weight and the positions of its payloads."""

    weight: float
    message: Message
    spans: dict[int, tuple[int, int]]
    """Start and size of each unit's payload, in bytes."""


class NeighbourLane(MessageLane):
    """A lane that sends a worker's message to each neighbour, by simultaneous point-to-point messages.

    A message begins with `remarks`, a few float64 numbers, and with the sizes of the payloads (uint32 a unit) if these
    depend on the data; both count as part of the message. It is not sent in parts.

    A step: `prepare_step`, `begin`, `add` for each unit, `send`, `communicate`. After it, `others` has the messages of
    the neighbours by worker. `own` is this worker's message as far as it is written.
    """

    def __init__(
        self, comm: Group, watch: Stopwatch, mixing: Mixing, collectives: CollectiveQueue | None = None
    ) -> None:
        super().__init__(comm, watch, collectives)
        self.mixing = mixing
        self.remarks = torch.zeros(0, dtype=torch.float64)
        self._rooms: list[torch.Tensor] = []
        self._bound = self._head = self._start = 0
        self._lengths: list[int] = []
        self.own = NeighbourMessage(1.0, Message(self.message), {})
        self.others: list[NeighbourMessage] = []
        self._sources: dict[int, float] = {}
        self._targets: list[int] = []
        self._on_way = False

    def carry(self, remarks: torch.Tensor) -> None:
        """Send the tensor `remarks`, (n,) float64, with every message, with its content at that time."""
        self.remarks = remarks

    def prepare_step(self, step: int, units: int) -> None:
        """Prepare the message of `step`, which has at most `units` units."""
        rank = self.comm.rank
        self._sources, self._targets = self.mixing.find_sources(rank, step), self.mixing.find_targets(rank, step)
        self._head = self.remarks.nbytes + 4 * units

    def begin(self) -> None:
        super().begin()
        self.used = self._head
        self.own = NeighbourMessage(1.0, Message(self.message), {})

    def reserve(self, size: int) -> None:
        self._bound = size + self._head
        super().reserve(self._bound)

    def send(self) -> None:
        """Send the message to the neighbours, and start to receive theirs."""
        table = b"" if find_fixed_sizes(self.parcels) is not None else encode_sizes(self.sizes).tobytes()
        head = self.remarks.numpy().tobytes() + table
        if head:
            self.message[self._head - len(head) : self._head] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        self._start = len(head)
        message = self.message[self._head - len(head) : self.used]
        count_words(message.numel())
        self._rooms += [self.allocate(0) for _ in range(len(self._sources) - len(self._rooms))]
        for number in range(len(self._sources)):
            if self._rooms[number].numel() < self._bound:
                self._rooms[number] = self.allocate(self._bound)
        self.payload_bytes = float(message.numel())
        self.sent_bytes = float(len(self._targets) * message.numel())
        self._on_way = True
        self.collectives.post(lambda comm: self._swap(comm, message))
        self.collectives.count("neighbours")

    def _swap(self, comm: Group, message: torch.Tensor) -> None:
        rooms, sources = self._rooms[: len(self._sources)], list(self._sources)
        self._lengths = comm.swap(message, self._targets, rooms, sources, self._start, self._measure)

    def _measure(self, message: torch.Tensor) -> int:
        """Return the length of a neighbour's message, of which at least the sizes are there."""
        return self._start + sum(map(align, self._read_sizes(message)))

    def _read_sizes(self, message: torch.Tensor) -> list[int]:
        """Return the sizes of the payloads in a neighbour's message, which has them if they depend on the data."""
        first = self.remarks.nbytes
        if not first < self._start <= message.numel():
            return self.sizes
        return np.frombuffer(message[first : self._start].cpu().numpy().tobytes(), dtype=np.uint32).tolist()

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """Wait for all messages; do nothing if none is in transit."""
        if self._on_way:
            self.collectives.complete()
            self._on_way = False
            arrived = zip(self._sources.items(), self._rooms, self._lengths, strict=False)
            self.others = [self._open(*source, room[:length]) for source, room, length in arrived]
        yield from ()

    def _open(self, sender: int, weight: float, message: torch.Tensor) -> NeighbourMessage:
        """Return the payloads in a neighbour's message.

        Raises:
            CorruptPayload: the message does not have the length that its sizes add up to.
        """
        lengths = self._read_sizes(message)
        *starts, end = accumulate(map(align, lengths), initial=self._start)
        if end != message.numel():
            raise CorruptPayload(f"worker {sender}'s message has {message.numel()} bytes, and should have {end}")
        units = (parcel.unit.index for parcel in self.parcels)
        return NeighbourMessage(
            weight, Message(message), dict(zip(units, zip(starts, lengths, strict=True), strict=True))
        )

    def add(self, parcel: Parcel) -> torch.Tensor:
        start = self.used
        payload = super().add(parcel)
        self.own.spans[parcel.unit.index] = start, payload.numel()
        return payload

    def decode(self) -> None:
        """Do nothing: the algorithm decodes the payloads."""

    def read_remarks(self) -> list[tuple[float, torch.Tensor]]:
        """Return the neighbours' remarks, each with its sender's weight."""
        heads = [other.message.tensor[: self.remarks.nbytes].cpu().clone().view(torch.float64) for other in self.others]
        return [(other.weight, head) for other, head in zip(self.others, heads, strict=True)]
