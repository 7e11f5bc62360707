"""torch.distributed as transport: NCCL if workers train on GPUs, gloo if they train on CPUs.

`connect` connects the workers of MPI, which starts them and carries checkpoints and records; the messages of lanes and
agreements go through torch.distributed. Lanes, parts and queues are those of MPI, with other collectives
(`torch_lanes`). With NCCL messages lie on the GPU. Imported only for transport=torch and by hooks (trainers/hooks).
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gradsweep.errors import UsageError, get_first_line
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.torch_group import PATIENCE, TorchGroup, check_available
from trainers.exchange.torch_lanes import GroupCollectiveQueue, GroupRoundsLane, GroupSumLane
from trainers.exchange.transport import Transport
from trainers.lanes.collective_queue import CollectiveQueue
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.summing import SumLane
from trainers.mpi.group import Group

if TYPE_CHECKING:
    from mpi4py import MPI

GPU_PART_BYTES = 25 * 2**20
"""A part of a message that leaves a GPU during backward: as DistributedDataParallel's buckets. After backward there is
one part only, since each would wait for its sizes, and nothing of it would be in the caches of a processor."""

KEY = "exchange.transport=torch"


def connect(comm: MPI.Comm, device: torch.device) -> ConnectedByMpi:
    """Connect the workers of a communicator by torch.distributed, as its default process group.

    Rank 0 opens a store on a free port of its host, and the others learn its address by MPI; no environment variables
    are read or set. A process group that exists already is used if it has the same workers.

    Args:
        device: of this worker; a GPU of its own, or the CPU.

    Raises:
        UsageError: this torch has no backend for the device, workers share a GPU, or they cannot connect.
    """
    backend = "gloo" if device.type == "cpu" else "nccl"
    check_available(backend, KEY, "mpi")
    if device.type != "cpu":
        _check_gpus(comm.allgather((socket.gethostname(), _get_gpu_name(device))))
    group = ConnectedByMpi(comm, backend, device)
    if not dist.is_initialized():
        _connect(group)
    return group


class ConnectedByMpi(TorchGroup):
    """The workers of a communicator, connected as the default process group."""

    def __init__(self, comm: MPI.Comm, backend: str, device: torch.device) -> None:
        super().__init__(backend, device, comm.rank, comm.size)
        self.comm = comm

    def close(self) -> None:
        global _store
        if dist.is_initialized():
            dist.destroy_process_group()
        self.comm.Barrier()  # the store, which is rank 0's, outlives what others may ask of it
        _store = None


_store: dist.TCPStore | None = None
"""The store by which the workers are connected: that of rank 0 serves the others until the group is closed."""


def _connect(group: ConnectedByMpi) -> None:
    global _store
    from mpi4py import MPI

    node = group.comm.Split_type(MPI.COMM_TYPE_SHARED)
    host = "127.0.0.1" if node.size == group.size else socket.gethostname()
    node.Free()
    store = None
    opened: tuple[str, int] | str = ""
    try:
        if group.rank == 0:
            store = dist.TCPStore(host, 0, group.size, True, timeout=PATIENCE, wait_for_workers=False)
            opened = host, store.port
    except (RuntimeError, OSError) as error:
        opened = get_first_line(error)
    opened = group.comm.bcast(opened)
    if isinstance(opened, str):
        raise UsageError(f"{KEY}: rank 0 cannot open a port: {opened}; valid is mpi")
    try:
        if store is None:
            host, port = opened
            store = dist.TCPStore(host, port, group.size, False, timeout=PATIENCE, wait_for_workers=False)
        _store = store
        gpu = None if group.device.type == "cpu" else group.device
        dist.init_process_group(
            group.backend, store=store, rank=group.rank, world_size=group.size, timeout=PATIENCE, device_id=gpu
        )
        group.try_sum(torch.float32)  # NCCL's and gloo's first errors come with the first collective
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            f"{KEY}: {group.backend} cannot connect the workers: {get_first_line(error)}; valid is mpi"
        ) from error


def _get_gpu_name(device: torch.device) -> str:
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device))


def _check_gpus(places: Sequence[tuple[str, str]]) -> None:
    """Refuse a GPU that several ranks use; `places` has the host and the GPU of every rank."""
    for rank, place in enumerate(places):
        if (first := places.index(place)) < rank:
            raise UsageError(
                f"{KEY}: ranks {first} and {rank} share a GPU of {place[0]}, which NCCL does not take; valid is a GPU "
                f"for each rank, or exchange.transport=mpi, with which ranks may share one"
            )


class TorchTransport(Transport):
    """The transport of messages by torch.distributed.

    Args:
        key: what an error line names if the backend cannot add a type of numbers.
        valid: what works instead.
    """

    group: TorchGroup

    def __init__(self, group: TorchGroup, watch: Stopwatch, *, key: str = KEY, valid: str = "mpi") -> None:
        self.group, self.watch, self._key, self._valid = group, watch, key, valid
        messages = {} if group.device.type == "cpu" else {"messages": "sent from the GPU"}
        self.described = {"transport": group.backend, **messages}

    def restrict(self, group: Group) -> TorchTransport:
        assert isinstance(group, TorchGroup)
        return TorchTransport(group, self.watch, key=self._key, valid=self._valid)

    def choose_part_bytes(self, part_mib: float | None, overlap: bool) -> int:
        if self.group.device.type == "cpu" or part_mib is not None:
            return super().choose_part_bytes(part_mib, overlap)
        return GPU_PART_BYTES if overlap else sys.maxsize

    def build_queue(self, overlap: bool) -> CollectiveQueue:
        return GroupCollectiveQueue(self.group, self.watch) if overlap else CollectiveQueue(self.group, self.watch)

    def build_sum_lane(self, dtype: str, collectives: CollectiveQueue) -> SumLane:
        try:
            collectives.complete()  # only one thread starts collectives at a time
            self.group.try_sum(getattr(torch, dtype))
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"{self._key}: {self.group.backend} cannot add {dtype}: {get_first_line(error)}; valid is {self._valid}"
            ) from error
        return GroupSumLane(self.group, self.watch, dtype, collectives)

    def build_rounds_lane(self, collectives: CollectiveQueue) -> RoundsLane:
        lane: Any = GroupRoundsLane
        return lane(self.group, self.watch, collectives)

    def maximise(self, tensor: torch.Tensor, collectives: CollectiveQueue) -> torch.Tensor:
        maximum = tensor.clone()
        self._complete(lambda group: group.maximise(maximum), collectives)
        return maximum

    def add_up(self, numbers: torch.Tensor, collectives: CollectiveQueue) -> torch.Tensor:
        total = numbers.to(self.group.device, copy=True)
        self._complete(lambda group: group.add_up(total), collectives)
        return total.cpu()

    def _complete(self, work: Callable[[Any], None], collectives: CollectiveQueue) -> None:
        """Do the work in its place among other collectives, which may be under way on a thread, and wait for it."""
        collectives.post(work)
        collectives.complete()

    def close(self) -> None:
        self.group.close()
