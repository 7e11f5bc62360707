"""The lane of payloads that go to the neighbours only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from compressors.decoding import Message
from trainers import sizes, staging
from trainers.lanes.base import MessageLane, Parcel
from trainers.lanes.courier import Courier
from trainers.lanes.decoding import Decoders
from trainers.lanes.gathering import payload_sizes
from trainers.sizes import ALIGNMENT, countable
from trainers.stopwatch import Stopwatch
from trainers.topology import Mixing

if TYPE_CHECKING:
    from mpi4py import MPI

TAG = 1


class NeighbourLane(MessageLane):
    """A worker's message goes to each of its neighbours, by point-to-point messages that all are on their way at once.

    It begins with `remarks`, a few float64 numbers, and, where the size of a payload depends on the data, with the
    sizes (uint32 a unit); both count as part of the message. It leaves as a whole. A step: `at`, `begin`, `add`,
    `leave`, `communicate`; then `decode_own` and `decode_others` as often as wanted.
    """

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, mixing: Mixing, courier: Courier | None = None) -> None:
        super().__init__(comm, watch, courier)
        self.mixing = mixing
        self.remarks = torch.zeros(0, dtype=torch.float64)
        self._rooms: list[torch.Tensor] = []
        self._bound = self._head = self._table = 0
        self._lengths: list[int] = []
        self._sources: dict[int, float] = {}
        self._targets: list[int] = []
        self._on_way = False

    def at(self, step: int, units: int) -> None:
        """The next message is that of `step`, and has at most so many units."""
        rank = self.comm.rank
        self._sources, self._targets = self.mixing.sources(rank, step), self.mixing.targets(rank, step)
        self._head = self.remarks.nbytes + 4 * units

    def begin(self) -> None:
        super().begin()
        self.used = self._head

    def reserve(self, size: int) -> None:
        self._bound = size + self._head
        super().reserve(self._bound)

    def leave(self) -> None:
        """The message leaves for the neighbours, and theirs may come."""
        fixed = all(p.compressor.payload_size(p.x.shape) is not None for p in self.parcels)
        table = b"" if fixed else payload_sizes(self.sizes).tobytes()
        head = self.remarks.numpy().tobytes() + table
        start = self._head - len(head)
        if head:
            self.message[start : self._head] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        self._table = len(table)
        message = self.message[start : self.used]
        countable(message.numel() // ALIGNMENT, sizes.LARGEST_COUNT, f"words of {ALIGNMENT} bytes in a message")
        self._rooms += [self.room(0) for _ in range(len(self._sources) - len(self._rooms))]
        for place in range(len(self._sources)):
            if self._rooms[place].numel() < self._bound:
                self._rooms[place] = self.room(self._bound)
        self.payload_bytes = float(message.numel())
        self.sent_bytes = float(len(self._targets) * message.numel())
        self._on_way = True
        self.courier.post(lambda comm: self._swap(comm, message))

    def _swap(self, comm: Any, message: torch.Tensor) -> None:
        from mpi4py import MPI

        incoming = [
            comm.Irecv([staging.buffer(room), room.numel() // ALIGNMENT, MPI.INT32_T], source, TAG)
            for source, room in zip(self._sources, self._rooms, strict=False)
        ]
        words = message.numel() // ALIGNMENT
        outgoing = [comm.Isend([staging.buffer(message), words, MPI.INT32_T], other, TAG) for other in self._targets]
        states = [MPI.Status() for _ in incoming]
        MPI.Request.Waitall(incoming, states)
        MPI.Request.Waitall(outgoing)
        self._lengths = [ALIGNMENT * state.Get_count(MPI.INT32_T) for state in states]

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """All messages have come; nothing where none is on its way."""
        if self._on_way:
            self.courier.complete()
            self._on_way = False
        yield from ()

    def decode(self) -> None:
        """Nothing: what becomes of the payloads is the algorithm's business."""

    def decode_own(self, into: Sequence[Parcel], decoders: Decoders, weight: float, *, first: bool = False) -> None:
        """Accumulate what this worker has sent, times `weight`; `first` replaces what is there."""
        with self.watch("decode"):
            decoders(into, Message(self.message), self._head, self.used, self.sizes, weight, first=first)

    def decode_others(self, into: Sequence[Parcel], decoders: Decoders, scale: float) -> None:
        """Accumulate what the neighbours have sent, each times its weight and `scale`."""
        with self.watch("decode"):
            for weight, room, length in zip(self._sources.values(), self._rooms, self._lengths, strict=False):
                start = self.remarks.nbytes + self._table
                lengths = self.sizes
                if self._table:
                    table = room[self.remarks.nbytes : start].cpu().numpy()
                    lengths = np.frombuffer(table.tobytes(), dtype=np.uint32).tolist()
                decoders(into, Message(room), start, length, lengths, weight * scale)

    def remarks_of_others(self) -> list[tuple[float, torch.Tensor]]:
        """The neighbours' remarks, each with its weight."""
        heads = [room[: self.remarks.nbytes].cpu().clone().view(torch.float64) for room in self._rooms]
        return list(zip(self._sources.values(), heads, strict=False))
