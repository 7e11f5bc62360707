"""torch.distributed as transport: NCCL if workers train on GPUs, gloo if they train on CPUs.

MPI starts the workers and carries agreements, checkpoints and records; only the messages of lanes go through
torch.distributed. Lanes, parts and queues are those of MPI, with other collectives: gathered messages are the same to
the bit; sums differ by the order of addition. With NCCL messages lie on the GPU. Imported only for transport=torch.
"""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from gradsweep.errors import UsageError
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.transport import Transport
from trainers.lanes.base import MessageLane
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue, Work
from trainers.lanes.gathering import Gathered, GatherLane
from trainers.lanes.parcel import MessagePart, Parcel
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.summing import SumLane
from trainers.mpi.message_sizes import ring_bytes

if TYPE_CHECKING:
    from mpi4py import MPI

PATIENCE = datetime.timedelta(minutes=30)
"""After so long a collective gives up. Ranks that fail end the others by MPI, long before."""

SIZE_BYTES = 8
"""Of the message before a swapped payload that says how long it is."""


class TorchGroup:
    """The workers of a communicator, connected by torch.distributed as its default process group.

    Rank 0 opens a store on a free port of its host, and the others learn its address by MPI; no environment variables
    are read or set. A process group that exists already is used if it has the same workers.

    Args:
        device: of this worker; a GPU of its own, or the CPU.

    Raises:
        UsageError: this torch has no backend for the device, workers share a GPU, or they cannot connect.
    """

    def __init__(self, comm: MPI.Comm, device: torch.device) -> None:
        self.comm, self.device, self.backend = comm, device, "gloo" if device.type == "cpu" else "nccl"
        self.rank, self.size = comm.rank, comm.size
        check_available(self.backend)
        if device.type != "cpu":
            _check_gpus(comm.allgather((socket.gethostname(), _get_gpu_name(device))))
        if not dist.is_initialized():
            self._connect()

    def _connect(self) -> None:
        from mpi4py import MPI

        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        host = "127.0.0.1" if node.size == self.size else socket.gethostname()
        node.Free()
        store: dist.TCPStore | None = None
        opened: tuple[str, int] | str = ""
        try:
            if self.rank == 0:
                store = dist.TCPStore(host, 0, self.size, True, timeout=PATIENCE, wait_for_workers=False)
                opened = host, store.port
        except (RuntimeError, OSError) as error:
            opened = _get_first_line(error)
        opened = self.comm.bcast(opened)
        if isinstance(opened, str):
            raise UsageError(f"exchange.transport=torch: rank 0 cannot open a port: {opened}; valid is mpi")
        try:
            if store is None:
                host, port = opened
                store = dist.TCPStore(host, port, self.size, False, timeout=PATIENCE, wait_for_workers=False)
            gpu = None if self.device.type == "cpu" else self.device
            dist.init_process_group(
                self.backend, store=store, rank=self.rank, world_size=self.size, timeout=PATIENCE, device_id=gpu
            )
            self.try_sum(torch.float32)  # NCCL's and gloo's first errors come with the first collective
        except (RuntimeError, ValueError, OSError) as error:
            raise UsageError(
                f"exchange.transport=torch: {self.backend} cannot connect the workers: {_get_first_line(error)}; "
                f"valid is mpi"
            ) from error

    def try_sum(self, dtype: torch.dtype) -> None:
        """Sum a number over the workers; raise RuntimeError if the backend cannot add its type. All workers call
        this."""
        one = torch.ones(1, dtype=dtype, device=self.device)
        dist.all_reduce(one)
        one.cpu()  # an error of NCCL's is raised here, and not in some later call

    def allocate(self, size: int) -> torch.Tensor:
        """Return a buffer of `size` bytes that the backend can read and write."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def close(self) -> None:
        """Disconnect the group. All workers call this."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self.comm.Barrier()  # the store, which is rank 0's, outlives what others may ask of it


def check_available(backend: str) -> None:
    """Raise UsageError if this torch lacks torch.distributed or the backend."""
    has = dist.is_available() and {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available}[backend]()
    if not has:
        raise UsageError(f"exchange.transport=torch: this torch ({torch.__version__}) has no {backend}; valid is mpi")


def _get_gpu_name(device: torch.device) -> str:
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device))


def _check_gpus(places: Sequence[tuple[str, str]]) -> None:
    """Refuse a GPU that several ranks use; `places` has the host and the GPU of every rank."""
    for rank, place in enumerate(places):
        if (first := places.index(place)) < rank:
            raise UsageError(
                f"exchange.transport=torch: ranks {first} and {rank} share a GPU of {place[0]}, which NCCL does not "
                f"take; valid is a GPU for each rank, or exchange.transport=mpi"
            )


def _get_first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class GroupCollectiveQueue(ThreadCollectiveQueue):
    """A queue that executes collectives on a thread; on a GPU, in their own stream parallel to backward.

    No other thread executes collectives meanwhile. So all workers start them in the same order, as NCCL requires.
    """

    def __init__(self, group: TorchGroup, watch: Stopwatch) -> None:
        self._stream = None if group.device.type == "cpu" else torch.cuda.Stream(group.device)
        super().__init__(group, watch)

    def _own(self, comm: Any) -> Any:
        return comm

    def _free(self) -> None:
        """Do nothing: the process group lives on until the rank ends."""

    def post(self, work: Work) -> None:
        super().post(work if self._stream is None else self._put_on_stream(work, self._stream))

    def _put_on_stream(self, work: Work, stream: torch.cuda.Stream) -> Work:
        written = torch.cuda.Event()
        written.record()  # by then the kernels that write the message have come to their end

        def work_on_stream(group: TorchGroup) -> None:
            with torch.cuda.stream(stream):
                stream.wait_event(written)
                work(group)

        return work_on_stream

    def complete(self) -> None:
        super().complete()
        if self._stream is not None:
            with self.watch("communicate"):
                torch.cuda.current_stream(self.comm.device).wait_stream(self._stream)


class GroupMessageLane(MessageLane):
    """A lane whose message is in the group's memory."""

    def allocate(self, size: int) -> torch.Tensor:
        group: TorchGroup = self.collectives.comm
        return group.allocate(size)


class GroupSumLane(GroupMessageLane, SumLane):
    """A lane whose payloads the backend adds, with one collective for each part: gloo in a ring; NCCL is assumed to
    use a ring."""

    def cut_segments(self, part: MessagePart) -> list[torch.Tensor]:
        return [self.message[part.start : part.end]]

    def add_up(self, comm: TorchGroup, segments: Sequence[torch.Tensor]) -> None:
        for segment in segments:
            if segment.numel():
                dist.all_reduce(segment.view(self.dtype))

    def count_sent_bytes(self, count: int, itemsize: int) -> float:
        return ring_bytes(count, itemsize, self.comm.size)


class GroupGathered(Gathered):
    """A part of all workers' messages, gathered by the backend: messages of equal length by an allgather, others by a
    broadcast from each worker.

    So nothing is padded, and as many bytes are sent as with MPI.
    """

    def gather_sizes(self, comm: TorchGroup) -> None:
        own = torch.from_numpy(self.own.view(np.int32)).to(comm.device)
        everyone = torch.empty(self.sizes.size, dtype=torch.int32, device=comm.device)
        _all_gather(everyone, own)
        self.sizes = everyone.cpu().numpy().view(np.uint32).reshape(self.sizes.shape)

    def move(self, comm: TorchGroup, message: torch.Tensor) -> None:
        if self.fixed:
            _all_gather(self.received[: self.starts[-1]], message)
            return
        self.message(comm.rank).copy_(message)
        theirs = [(worker, self.message(worker)) for worker in range(comm.size)]
        under_way = [dist.broadcast(one, worker, async_op=True) for worker, one in theirs if one.numel()]
        for work in under_way:
            work.wait()


class GroupGatherLane(GroupMessageLane, GatherLane):
    """A lane that sends every message to every worker, by the backend."""

    gathered = GroupGathered


class GroupRoundsLane(RoundsLane):
    """A lane for the rounds of cooperative methods, sums and swaps, by the backend.

    The length of a swapped payload is sent before it, and is counted as sent.
    """

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.collectives.complete()  # only one thread starts collectives at a time
        yield from super().communicate()

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel():
            dist.all_reduce(tensor)
        self.payload_bytes += 4 * tensor.numel()
        self.sent_bytes += ring_bytes(tensor.numel(), 4, self.comm.size)
        return tensor

    def _swap(self, partner: int | None, payload: torch.Tensor) -> torch.Tensor:
        if partner is None:
            return payload[:0]
        group: TorchGroup = self.collectives.comm
        own = torch.tensor([payload.numel()], dtype=torch.int64, device=group.device)
        theirs = torch.empty_like(own)
        _exchange(partner, own, theirs)
        received = group.allocate(int(theirs))
        _exchange(partner, payload.to(group.device).contiguous(), received)
        self.payload_bytes += payload.numel() + SIZE_BYTES
        self.sent_bytes += payload.numel() + SIZE_BYTES
        return received


def _exchange(partner: int, sent: torch.Tensor, received: torch.Tensor) -> None:
    operations: list[tuple[Callable[..., Any], torch.Tensor]] = [(dist.isend, sent), (dist.irecv, received)]
    wanted = [dist.P2POp(operation, tensor, partner) for operation, tensor in operations if tensor.numel()]
    if wanted:
        for work in dist.batch_isend_irecv(wanted):
            work.wait()


def _all_gather(received: torch.Tensor, sent: torch.Tensor) -> None:
    """Write the `sent` of all workers, which have the same length, one after another into `received`."""
    if sent.numel():
        newer = getattr(dist, "all_gather_single", None)  # its name since torch 2.13
        (newer or dist.all_gather_into_tensor)(received, sent)


class TorchTransport(Transport):
    """The transport by torch.distributed: NCCL or gloo, depending on the workers' device.

    Raises:
        UsageError: NCCL or gloo cannot connect the workers.
    """

    sum_lane, gather_lane, rounds_lane = GroupSumLane, GroupGatherLane, GroupRoundsLane

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, device: torch.device) -> None:
        super().__init__(comm, watch)
        self.group = TorchGroup(comm, device)
        messages = {} if device.type == "cpu" else {"messages": "sent from the GPU"}
        self.described = {"transport": self.group.backend, **messages}

    def build_queue(self, overlap: bool) -> CollectiveQueue:
        return GroupCollectiveQueue(self.group, self.watch) if overlap else CollectiveQueue(self.group, self.watch)

    def build_sum_lane(self, dtype: str, collectives: CollectiveQueue) -> SumLane:
        try:
            self.group.try_sum(getattr(torch, dtype))
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"exchange.transport=torch: {self.group.backend} cannot add {dtype}: {_get_first_line(error)}; "
                f"valid is mpi"
            ) from error
        return super().build_sum_lane(dtype, collectives)

    def close(self) -> None:
        self.group.close()
