"""The lane of payloads that an allgather sends to every worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from compressors.message import Message
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import MessageLane
from trainers.lanes.bundles import find_fixed_sizes
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.parcel import MessagePart
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import ALIGNMENT, LARGEST_SIZE, check_count, count_words


def encode_sizes(lengths: Sequence[int]) -> npt.NDArray[np.uint32]:
    """Return the sizes of payloads in the form in which they are sent: uint32."""
    return np.array([check_count(size, "bytes in a payload", LARGEST_SIZE) for size in lengths], dtype=np.uint32)


class Gathered:
    """A part of the messages, gathered from all workers: one worker's part after another, and the payloads' sizes."""

    def __init__(self, part: MessagePart, received: torch.Tensor, workers: int) -> None:
        self.part, self.received = part, received
        self.own = encode_sizes(part.sizes)
        self.sizes = np.tile(self.own, (workers, 1))
        self.fixed = find_fixed_sizes(part.parcels) is not None

    def gather(self, comm: Group, message: torch.Tensor, allocate: Callable[[int], torch.Tensor]) -> None:
        """Send `message` to all workers and receive theirs; call `allocate` if `received` is too small for them."""
        if not self.fixed:
            counts = [len(self.own)] * comm.size
            self.sizes = comm.gather_numbers(self.own, counts).reshape(self.sizes.shape)
        lengths = (-(-self.sizes.astype(np.int64) // ALIGNMENT)).sum(axis=1)
        starts = np.concatenate(([0], lengths.cumsum()))
        self.starts = starts * ALIGNMENT
        count_words(int(self.starts[-1]), "the messages of all workers")
        if self.starts[-1] > self.received.numel():
            self.received = allocate(int(self.starts[-1]))
        received = self.received[: self.starts[-1]]
        if self.fixed:
            comm.gather(received, message)
        else:
            comm.gather_unequal(received, message, np.diff(self.starts).tolist())

    def messages(self) -> Iterator[tuple[int, int, list[int]]]:
        """Yield each worker's message: its start and end in `received`, and the sizes of its payloads."""
        edges = self.starts.tolist()
        yield from zip(edges, edges[1:], self.sizes.tolist(), strict=False)


class GatherLane(MessageLane):
    """A lane that sends every message to every worker, W - 1 times; each worker decodes all of them.

    Where the size of a payload depends on the data, the sizes (uint32 a unit) are gathered first and count as part of
    the message.
    """

    def __init__(self, comm: Group, watch: Stopwatch, collectives: CollectiveQueue | None = None) -> None:
        super().__init__(comm, watch, collectives)
        self._rooms: list[torch.Tensor] = []  # memory of received parts, to be used again
        self._gathered: list[Gathered] = []

    def begin(self) -> None:
        super().begin()
        self._rooms[: len(self._gathered)] = [gathered.received for gathered in self._gathered]
        self._gathered.clear()

    def post(self) -> None:
        part = self.cut_part()
        if part is None:
            return
        message = self.message[part.start : part.end]
        count_words(message.numel())
        if len(self._rooms) == len(self._gathered):
            self._rooms.append(self.allocate(0))
        gathered = Gathered(part, self._rooms[len(self._gathered)], self.comm.size)
        self._gathered.append(gathered)
        self.collectives.post(lambda comm: gathered.gather(comm, message, self.allocate))
        self.collectives.count("allgather")
        payload_bytes = message.numel()
        if not gathered.fixed:
            self.collectives.count("sizes")
            payload_bytes += gathered.own.nbytes
        self.payload_bytes += payload_bytes
        self.sent_bytes += (self.comm.size - 1) * payload_bytes

    def decode(self) -> None:
        with self.watch("decode"):
            for gathered in self._gathered:
                message, weight, first = Message(gathered.received), 1.0 / self.comm.size, True
                parcels, apart = gathered.part.parcels, dict[int, list[torch.Tensor]]()
                for start, end, lengths in gathered.messages():
                    self.decoders(parcels, message, start, end, lengths, weight, first=first, apart=apart)
                    first = False
                for parcel in parcels:
                    if parcel.unit.index in apart:
                        parcel.compressor.average(apart[parcel.unit.index], parcel.unit.gradient, parcel.key)
