"""The lane of payloads that an allreduce adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compressors.message import Message
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import MessageLane
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.parcel import MessagePart
from trainers.mpi import staging
from trainers.mpi.message_sizes import allreduce_bytes, check_count, segment_bytes

if TYPE_CHECKING:
    from mpi4py import MPI


class SumLane(MessageLane):
    """A lane that adds the payloads in place by allreduces, as vectors of `dtype`.

    Args:
        algorithm: of the allreduces of `comm`; None: a ring.
        part_mib: MiB of a part of a message; None: by the number of workers.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        watch: Stopwatch,
        dtype: str,
        collectives: CollectiveQueue | None = None,
        *,
        algorithm: str | None = None,
        part_mib: float | None = None,
    ) -> None:
        self.name, self.dtype, self.algorithm = dtype, getattr(torch, dtype), algorithm
        self._longest = segment_bytes(comm.size, part_mib)
        super().__init__(comm, watch, collectives)

    def allocate(self, size: int) -> torch.Tensor:
        _, operation = _get_summation(self.name)
        return staging.allocate_message(size, host=not operation.is_predefined)  # our own sums are done by the CPU

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

    def add_up(self, comm: Any, segments: Sequence[torch.Tensor]) -> None:
        """Replace each segment by its sum over the workers."""
        from mpi4py import MPI

        kind, operation = _get_summation(self.name)
        for segment in segments:
            count = segment.numel() // self.dtype.itemsize
            comm.Allreduce(MPI.IN_PLACE, [staging.get_mpi_buffer(segment), count, kind], operation)

    def count_sent_bytes(self, count: int, itemsize: int) -> float:
        """Return the mean bytes that a worker sends to sum `count` numbers."""
        return allreduce_bytes(count, itemsize, self.comm.size, self.algorithm)

    def decode(self) -> None:
        with self.watch("decode"):
            message, weight = Message(self.message), 1.0 / self.comm.size
            self.decoders(self.parcels, message, 0, self.used, self.sizes, weight, first=True)


_half_sums: dict[str, MPI.Op] = {}


def _get_summation(dtype: str) -> tuple[MPI.Datatype, MPI.Op]:
    """Return the MPI type and operation for payloads of `dtype`. MPI has no half floats: torch adds them."""
    from mpi4py import MPI

    native = {"float32": MPI.FLOAT, "int8": MPI.INT8_T, "int32": MPI.INT32_T}
    if dtype in native:
        return native[dtype], MPI.SUM
    if dtype not in _half_sums:
        kind = getattr(torch, dtype)

        def add(theirs: Any, ours: Any, datatype: MPI.Datatype) -> None:
            if len(ours):
                torch.frombuffer(ours, dtype=kind).add_(torch.frombuffer(theirs, dtype=kind))

        _half_sums[dtype] = MPI.Op.Create(add, commute=True)
    return MPI.UINT16_T, _half_sums[dtype]
