"""The lane of payloads that the network adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from trainers import sizes, staging
from trainers.lanes.base import MessageLane, Parcel
from trainers.lanes.courier import Courier
from trainers.sizes import allreduce_bytes, countable
from trainers.stopwatch import Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


SEGMENT_BYTES = 2**21
"""The network adds at most this much at a time: what goes round in a ring then stays in the caches of the processors,
which makes sums of tens of MiB two to three times as fast (docs/benchmarks.md)."""


class SumLane(MessageLane):
    """The network adds the payloads, as vectors of `dtype`, in place."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, dtype: str, courier: Courier | None = None) -> None:
        self.dtype = getattr(torch, dtype)
        self._kind, self._operation = _summation(dtype)
        super().__init__(comm, watch, courier)

    def room(self, size: int) -> torch.Tensor:
        return staging.message(size, host=not self._operation.is_predefined)  # our own sums are done by the CPU

    def post(self) -> None:
        from mpi4py import MPI

        part = self.cut()
        if part is None:
            return
        itemsize = self._kind.Get_size()
        countable((part.end - part.start) // itemsize, sizes.LARGEST_COUNT, "numbers in a sum of all workers")
        segments = [
            self.message[low : min(low + SEGMENT_BYTES, part.end)] for low in range(part.start, part.end, SEGMENT_BYTES)
        ]

        def add(comm: MPI.Comm) -> None:
            for segment in segments:
                count = segment.numel() // itemsize
                comm.Allreduce(MPI.IN_PLACE, [staging.buffer(segment), count, self._kind], self._operation)

        self.courier.post(add)
        self.payload_bytes += part.end - part.start
        self.sent_bytes += sum(allreduce_bytes(s.numel() // itemsize, itemsize, self.comm.size) for s in segments)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.post()
        self.courier.complete()
        yield from ()

    def decode(self) -> None:
        with self.watch("decode"):
            self.add_decoded(self.message[: self.used], self.sizes, 1.0 / self.comm.size, first=True)


_half_sums: dict[str, MPI.Op] = {}


def _summation(dtype: str) -> tuple[MPI.Datatype, MPI.Op]:
    """The MPI type and operation that add payloads of `dtype`. MPI has no half floats: torch adds those."""
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
