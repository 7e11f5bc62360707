"""The lane of payloads that an allreduce adds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from compressors.message import Message
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import MessageLane
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.parcel import MessagePart
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import allreduce_bytes, check_count, segment_bytes


class SumLane(MessageLane):
    """A lane that adds the payloads in place by allreduces, as vectors of `dtype`.

    Args:
        algorithm: of the allreduces of `comm`; None: a ring.
        part_mib: MiB of a part of a message; None: by the number of workers.
    """

    def __init__(
        self,
        comm: Group,
        watch: Stopwatch,
        dtype: str,
        collectives: CollectiveQueue | None = None,
        *,
        algorithm: str | None = None,
        part_mib: float | None = None,
    ) -> None:
        self.dtype, self.algorithm = getattr(torch, dtype), algorithm
        self._longest = segment_bytes(comm.size, part_mib)
        super().__init__(comm, watch, collectives)

    def allocate(self, size: int) -> torch.Tensor:
        return self.comm.allocate(size, added=self.dtype)

    def post(self) -> None:
        part = self.cut_part()
        if part is None:
            return
        itemsize = self.dtype.itemsize
        check_count((part.end - part.start) // itemsize, "numbers in a sum of all workers")
        segments = self.cut_segments(part)
        self.collectives.post(lambda comm: self.add_up(comm, segments))
        self.collectives.count("allreduce", len(segments))
        self.payload_bytes += part.end - part.start
        self.sent_bytes += sum(self.count_sent_bytes(s.numel() // itemsize, itemsize) for s in segments)

    def cut_segments(self, part: MessagePart) -> list[torch.Tensor]:
        """Cut a part of the message into the segments that are summed one by one."""
        longest = self._longest
        return [self.message[low : min(low + longest, part.end)] for low in range(part.start, part.end, longest)]

    def add_up(self, comm: Group, segments: Sequence[torch.Tensor]) -> None:
        """Replace each segment by its sum over the workers."""
        for segment in segments:
            comm.add_up(segment.view(self.dtype))

    def count_sent_bytes(self, count: int, itemsize: int) -> float:
        """Return the mean bytes that a worker sends to sum `count` numbers."""
        return allreduce_bytes(count, itemsize, self.comm.size, self.algorithm)

    def decode(self) -> None:
        with self.watch("decode"):
            message, weight = Message(self.message), 1.0 / self.comm.size
            self.decoders(self.parcels, message, 0, self.used, self.sizes, weight, first=True)
