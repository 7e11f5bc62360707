"""The transport of an exchange's messages: MPI, or torch.distributed (trainers/exchange/torch_transport.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.summing import SumLane
from trainers.mpi import allreduce, staging
from trainers.mpi.group import Group, MpiGroup
from trainers.mpi.message_sizes import part_bytes

if TYPE_CHECKING:
    from mpi4py import MPI


class Transport:
    """The transport of an exchange: the group of its workers, and their queue. This class uses MPI.

    Args:
        algorithm: of MPI's allreduce; None: as the environment variables of MPI say.
        part_mib: size in MiB of the parts in which a message is sent; None: it depends on the number of workers.

    Raises:
        UsageError: this MPI does not let a program choose the algorithm.
    """

    described: Mapping[str, str] = {}
    """What result.json records about the transport."""

    def __init__(
        self, comm: MPI.Comm, watch: Stopwatch, *, algorithm: str | None = None, part_mib: float | None = None
    ) -> None:
        self._workers = comm
        self._own = comm if algorithm is None else allreduce.duplicate(comm, algorithm)
        self.group: Group = MpiGroup(self._own)
        self.watch, self.algorithm, self.part_mib = watch, algorithm, part_mib

    def restrict(self, group: Group) -> Transport:
        """Return the same transport among some of the workers, a part of the group."""
        assert isinstance(group, MpiGroup)
        return Transport(group.comm, self.watch)

    def choose_part_bytes(self, part_mib: float | None, overlap: bool) -> int:
        """Return the bytes of payloads that lanes send together, at least; `part_mib` is the option."""
        return part_bytes(self.group.size, part_mib)

    def build_queue(self, overlap: bool) -> CollectiveQueue:
        """Build the queue for all lanes of an exchange; with `overlap` it executes collectives during backward.

        Raises:
            UsageError: the MPI library does not allow calls from several threads.
        """
        with allreduce.using(self.algorithm):  # the thread makes a communicator
            return ThreadCollectiveQueue(self.group, self.watch) if overlap else CollectiveQueue(self.group, self.watch)

    def build_sum_lane(self, dtype: str, collectives: CollectiveQueue) -> SumLane:
        """Build a lane of payloads that are added as numbers of `dtype`."""
        return SumLane(self.group, self.watch, dtype, collectives, algorithm=self.algorithm, part_mib=self.part_mib)

    def build_rounds_lane(self, collectives: CollectiveQueue) -> RoundsLane:
        """Build a lane of units that a cooperative compressor reduces in rounds."""
        return RoundsLane(self._own, self.watch, collectives, algorithm=self.algorithm)

    def maximise(self, tensor: torch.Tensor, collectives: CollectiveQueue) -> torch.Tensor:
        """Return the elementwise maximum of the workers' tensors, on the same device. All workers call this.

        Args:
            collectives: the queue of the exchange, which may be at work on the messages of lanes.
        """
        from mpi4py import MPI

        largest = staging.move_to_host(tensor)
        self._workers.Allreduce(MPI.IN_PLACE, [largest.numpy(), MPI.FLOAT], MPI.MAX)
        return largest.to(tensor.device)

    def add_up(self, numbers: torch.Tensor, collectives: CollectiveQueue) -> torch.Tensor:
        """Return the sum of the workers' tensors, float64 in main memory, with the same bits on all of them.

        All workers call this. `collectives` is as in `maximise`.
        """
        from mpi4py import MPI

        total = numbers.clone()
        self._workers.Allreduce(MPI.IN_PLACE, [total.numpy(), MPI.DOUBLE])
        return total

    def close(self) -> None:
        """Disconnect the workers after the last message. All workers call this; a second call does nothing."""
        if self.algorithm is not None and self._own:
            self._own.Free()
