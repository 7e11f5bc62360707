"""The transport of an exchange's messages: MPI, or torch.distributed (trainers/exchange/torch_transport.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue
from trainers.lanes.gathering import GatherLane
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.sharding import ShardLane
from trainers.lanes.summing import SumLane
from trainers.mpi import allreduce, staging

if TYPE_CHECKING:
    from mpi4py import MPI


class Transport:
    """The transport of an exchange, which builds its lanes and their queue. This class uses MPI.

    Args:
        algorithm: of MPI's allreduce; None: as the environment variables of MPI say.
        part_mib: size in MiB of the parts in which a message is sent; None: it depends on the number of workers.

    Raises:
        UsageError: this MPI does not let a program choose the algorithm.
    """

    described: Mapping[str, str] = {}
    """What result.json records about the transport."""
    sum_lane: type[SumLane] = SumLane
    gather_lane: type[GatherLane] = GatherLane
    rounds_lane: type[RoundsLane] = RoundsLane
    shard_lane: type[ShardLane] = ShardLane

    def __init__(
        self, comm: MPI.Comm, watch: Stopwatch, *, algorithm: str | None = None, part_mib: float | None = None
    ) -> None:
        self._workers = comm
        self.comm = comm if algorithm is None else allreduce.duplicate(comm, algorithm)
        self.watch, self.algorithm, self.part_mib = watch, algorithm, part_mib

    def build_queue(self, overlap: bool) -> CollectiveQueue:
        """Build the queue for all lanes of an exchange; with `overlap` it executes collectives during backward.

        Raises:
            UsageError: the MPI library does not allow calls from several threads.
        """
        with allreduce.using(self.algorithm):  # the thread makes a communicator
            return ThreadCollectiveQueue(self.comm, self.watch) if overlap else CollectiveQueue(self.comm, self.watch)

    def build_sum_lane(self, dtype: str, collectives: CollectiveQueue) -> SumLane:
        """Build a lane of payloads that are added as numbers of `dtype`."""
        return self.sum_lane(
            self.comm, self.watch, dtype, collectives, algorithm=self.algorithm, part_mib=self.part_mib
        )

    def build_gather_lane(self, collectives: CollectiveQueue) -> GatherLane:
        """Build a lane that sends payloads to every worker."""
        return self.gather_lane(self.comm, self.watch, collectives)

    def build_rounds_lane(self, collectives: CollectiveQueue) -> RoundsLane:
        """Build a lane of units that a cooperative compressor reduces in rounds."""
        return self.rounds_lane(self.comm, self.watch, collectives, algorithm=self.algorithm)

    def build_shard_lane(self, selector: Selector, second: SecondPhase, owners: Sequence[int]) -> ShardLane:
        """Build a lane that sends each unit's payloads to its owner, which answers all workers."""
        return self.shard_lane(self.comm, self.watch, selector, second, owners)

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
        if self.algorithm is not None and self.comm:
            self.comm.Free()
