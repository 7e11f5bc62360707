"""The lanes and the queue of a group that torch.distributed connects.

They are those of MPI, with other collectives: gathered messages are the same to the bit; sums differ by the order of
addition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.torch_group import StartingGroup, TorchGroup
from trainers.lanes.base import MessageLane
from trainers.lanes.bundles import Room
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue, Work
from trainers.lanes.gathering import Gathered, GatherLane
from trainers.lanes.parcel import MessagePart, Parcel
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.sharding import ShardLane
from trainers.lanes.summing import SumLane
from trainers.mpi.message_sizes import part_bytes, ring_bytes

SIZE_BYTES = 8
"""Of the message before a swapped payload that says how long it is."""


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


class StartingCollectiveQueue(CollectiveQueue):
    """A queue whose collectives start when they are posted, and go on in the threads or streams of the backend.

    Sizes of payloads are waited for at once. While backward has the cores, this takes less time than a thread.
    """

    def __init__(self, group: TorchGroup, watch: Stopwatch) -> None:
        super().__init__(group, watch)
        self._starting = StartingGroup(group)

    def post(self, work: Work) -> None:
        work(self._starting)

    def complete(self) -> None:
        with self.watch("communicate"):
            self._starting.settle()


class GroupMessageLane(MessageLane):
    """A lane whose message is in the group's memory."""

    def allocate(self, size: int) -> torch.Tensor:
        group: TorchGroup = self.collectives.comm
        return group.allocate(size)


class GroupSumLane(GroupMessageLane, SumLane):
    """A lane whose payloads the backend adds, with one collective for each part: gloo in a ring; NCCL is assumed to
    use a ring.

    A large gradient that is sent uncompressed is summed where it is, without a copy in the message.
    """

    def begin(self) -> None:
        super().begin()
        self._in_place: list[Parcel] = []
        self._unposted: list[torch.Tensor] = []

    @property
    def is_used(self) -> bool:
        return super().is_used or bool(self._in_place)

    def add(self, parcel: Parcel) -> torch.Tensor:
        if not self._is_own_payload(parcel):
            return super().add(parcel)
        payload = parcel.x.detach().view(-1).view(torch.uint8)
        self._in_place.append(parcel)
        self._unposted.append(payload)
        return payload

    def _is_own_payload(self, parcel: Parcel) -> bool:
        """Tell whether the sum may replace the unit's gradient, because this is what is sent."""
        x, gradient = parcel.x, parcel.unit.gradient
        return (
            parcel.compressor.name == "none"
            and (x.data_ptr(), x.dtype, x.device) == (gradient.data_ptr(), torch.float32, self.message.device)
            and x.is_contiguous()
            and x.nbytes >= part_bytes(self.comm.size)
        )

    def post(self) -> None:
        for payload in self._unposted:
            self.collectives.post(functools.partial(_add_floats, payload=payload))
            self.collectives.count("allreduce")
            self.payload_bytes += payload.numel()
            self.sent_bytes += self.count_sent_bytes(payload.numel() // 4, 4)
        self._unposted = []
        super().post()

    def cut_segments(self, part: MessagePart) -> list[torch.Tensor]:
        return [self.message[part.start : part.end]]

    def add_up(self, comm: TorchGroup, segments: Sequence[torch.Tensor]) -> None:
        for segment in segments:
            comm.add_up(segment.view(self.dtype))

    def count_sent_bytes(self, count: int, itemsize: int) -> float:
        return ring_bytes(count, itemsize, self.comm.size)

    def decode(self) -> None:
        with self.watch("decode"):
            for parcel in self._in_place:
                parcel.unit.gradient.mul_(1.0 / self.comm.size)
        super().decode()


def _add_floats(group: TorchGroup, payload: torch.Tensor) -> None:
    group.add_up(payload.view(torch.float32))


class GroupGathered(Gathered):
    """A part of all workers' messages, gathered by the backend: messages of equal length by an allgather, others by a
    broadcast from each worker.

    So nothing is padded, and as many bytes are sent as with MPI.
    """

    def gather_sizes(self, comm: TorchGroup) -> None:
        everyone = _gather_numbers(comm, self.own)
        self.sizes = everyone.reshape(self.sizes.shape)

    def move(self, comm: TorchGroup, message: torch.Tensor) -> None:
        if self.fixed:
            comm.gather(self.received[: self.starts[-1]], message)
            return
        self.message(comm.rank).copy_(message)
        comm.gather_unequal([self.message(worker) for worker in range(comm.size)])


def _gather_numbers(group: TorchGroup, own: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the numbers of all workers, which have equally many, one worker's after another."""
    received = torch.empty(group.size * own.size, dtype=torch.int32, device=group.device)
    group.gather(received, _view_numbers(group, own))
    group.settle()
    return received.cpu().numpy().view(np.uint32)


def _view_numbers(group: TorchGroup, own: npt.NDArray[np.uint32]) -> torch.Tensor:
    """Return numbers as the backend sends them: it may not know uint32."""
    return torch.from_numpy(own.view(np.int32)).to(group.device)


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
        group: TorchGroup = self.collectives.comm
        group.add_up(tensor)
        self.payload_bytes += 4 * tensor.numel()
        self.sent_bytes += ring_bytes(tensor.numel(), 4, self.comm.size)
        return tensor

    def _swap(self, partner: int | None, payload: torch.Tensor) -> torch.Tensor:
        if partner is None:
            return payload[:0]
        group: TorchGroup = self.collectives.comm
        own = torch.tensor([payload.numel()], dtype=torch.int64, device=group.device)
        theirs = torch.empty_like(own)
        group.swap(partner, own, theirs)
        received = group.allocate(int(theirs))
        group.swap(partner, payload.to(group.device).contiguous(), received)
        self.payload_bytes += payload.numel() + SIZE_BYTES
        self.sent_bytes += payload.numel() + SIZE_BYTES
        return received


class GroupShardLane(ShardLane):
    """A lane of sharded units, by the backend. `comm` is the group."""

    comm: TorchGroup  # type: ignore[assignment]

    def __init__(self, group: TorchGroup, *arguments: Any) -> None:
        super().__init__(group, *arguments)  # type: ignore[arg-type]
        self._incoming, self._outgoing, self._gathered = (Room(group.allocate) for _ in range(3))

    def allocate(self, size: int) -> torch.Tensor:
        return self.comm.allocate(size)

    def scatter_sizes(self, own: npt.NDArray[np.uint32], counts: Sequence[int]) -> npt.NDArray[np.uint32]:
        workers, mine = self.comm.size, counts[self.comm.rank]
        received = torch.empty(workers * mine, dtype=torch.int32, device=self.comm.device)
        self.comm.scatter(received, _view_numbers(self.comm, own), [mine] * workers, counts)
        return received.cpu().numpy().view(np.uint32).reshape(workers, mine)

    def scatter(self, sent: Sequence[int], received: Sequence[int], incoming: torch.Tensor) -> None:
        bundles = [self._message[start : start + size] for start, size in zip(self.starts, sent, strict=False)]
        self.comm.scatter(incoming, torch.cat(bundles), received, sent)

    def gather_sizes(self, own: npt.NDArray[np.uint32], counts: Sequence[int]) -> npt.NDArray[np.uint32]:
        padded = np.zeros(max(counts), dtype=np.uint32)
        padded[: own.size] = own
        everyone = _gather_numbers(self.comm, padded).reshape(self.comm.size, padded.size)
        return np.concatenate([numbers[:count] for numbers, count in zip(everyone, counts, strict=True)])

    def gather(self, answer: torch.Tensor, received: Sequence[int], means: torch.Tensor) -> None:
        messages = means.split(list(received))
        messages[self.comm.rank].copy_(answer)
        self.comm.gather_unequal(messages)
