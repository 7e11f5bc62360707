"""The lane of cooperative methods, which need several rounds of communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from compressors.base import Cooperative, Reduction, Sum
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import Lane
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.parcel import Parcel
from trainers.mpi import staging
from trainers.mpi.message_sizes import allreduce_bytes, check_count

if TYPE_CHECKING:
    from mpi4py import MPI


class RoundsLane(Lane):
    """A lane of units with a cooperative compressor, whose `rounds` yields each round's communication.

    Args:
        algorithm: of the allreduces of `comm`; None: a ring.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        watch: Stopwatch,
        collectives: CollectiveQueue | None = None,
        *,
        algorithm: str | None = None,
    ) -> None:
        super().__init__(comm, watch, collectives)
        self.algorithm = algorithm

    def begin(self) -> None:
        super().begin()
        self._reductions: list[Reduction] = []

    def add(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        if not self.parcels:
            return
        compressor = self.parcels[0].compressor
        assert isinstance(compressor, Cooperative)
        batch = [(parcel.x, parcel.key) for parcel in self.parcels]
        rounds = compressor.rounds(batch, self.comm.rank, self.comm.size)
        answer: torch.Tensor | None = None
        while True:
            with self.watch("encode"):
                try:
                    request = rounds.send(answer)  # type: ignore[arg-type]
                except StopIteration as stop:
                    self._reductions = stop.value
                    break
            with self.watch("communicate"):
                if isinstance(request, Sum):
                    self.collectives.count("rounds")
                    answer = self._sum(request.tensor)
                else:
                    self.collectives.count("swaps", int(request.partner is not None))
                    answer = self._swap(request.partner, request.payload)
        yield from ((parcel, reduced.own) for parcel, reduced in zip(self.parcels, self._reductions, strict=True))

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        from mpi4py import MPI

        check_count(tensor.numel(), "numbers in a sum of all workers")
        host = staging.move_to_host(tensor)
        self.comm.Allreduce(MPI.IN_PLACE, [host.numpy(), MPI.FLOAT])
        tensor.copy_(host)
        self.payload_bytes += 4 * tensor.numel()
        self.sent_bytes += allreduce_bytes(tensor.numel(), 4, self.comm.size, self.algorithm)
        return tensor

    def _swap(self, partner: int | None, payload: torch.Tensor) -> torch.Tensor:
        from mpi4py import MPI

        if partner is None:
            return payload[:0]
        check_count(payload.numel(), "bytes in a message")
        sending = self.comm.Isend([staging.move_to_host(payload).numpy(), MPI.BYTE], partner)
        status = MPI.Status()
        self.comm.Probe(partner, status=status)
        received = torch.empty(status.Get_count(MPI.BYTE), dtype=torch.uint8)
        self.comm.Recv([received.numpy(), MPI.BYTE], partner)
        sending.Wait()
        self.payload_bytes += payload.numel()
        self.sent_bytes += payload.numel()
        return received

    def decode(self) -> None:
        if not self.parcels:
            return
        compressor = self.parcels[0].compressor
        assert isinstance(compressor, Cooperative)
        with self.watch("decode"):
            units = [(parcel.unit.gradient, parcel.key) for parcel in self.parcels]
            compressor.decompress_together(self._reductions, units, replace=True)
