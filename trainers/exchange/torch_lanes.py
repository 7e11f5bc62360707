"""The queues of a group that torch.distributed connects, and the two kinds of lanes that differ from those of MPI.

Gathered messages are those of MPI to the bit; sums of more than two workers differ by the order of addition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.torch_group import StartingGroup, TorchGroup
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue, Work
from trainers.lanes.parcel import MessagePart, Parcel
from trainers.lanes.rounds import RoundsLane
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


class GroupSumLane(SumLane):
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

    def count_sent_bytes(self, count: int, itemsize: int) -> float:
        return ring_bytes(count, itemsize, self.comm.size)

    def decode(self) -> None:
        with self.watch("decode"):
            for parcel in self._in_place:
                parcel.unit.gradient.mul_(1.0 / self.comm.size)
        super().decode()


def _add_floats(group: TorchGroup, payload: torch.Tensor) -> None:
    group.add_up(payload.view(torch.float32))


class GroupRoundsLane(RoundsLane):
    """A lane for the rounds of cooperative methods, sums and swaps, by the backend.

    The length of a swapped payload is sent before it, and is counted as sent.
    """

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.collectives.complete()  # only one thread starts collectives at a time
        yield from super().communicate()

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.collectives.comm.add_up(tensor)
        self.payload_bytes += 4 * tensor.numel()
        self.sent_bytes += ring_bytes(tensor.numel(), 4, self.comm.size)
        return tensor

    def _swap(self, partner: int | None, payload: torch.Tensor) -> torch.Tensor:
        if partner is None:
            return payload[:0]
        group = self.collectives.comm
        assert isinstance(group, TorchGroup)
        own = torch.tensor([payload.numel()], dtype=torch.int64, device=group.device)
        theirs = torch.empty_like(own)
        group.send_and_receive(own, [partner], [theirs], [partner])
        received = group.allocate(int(theirs))
        group.send_and_receive(payload.to(group.device).contiguous(), [partner], [received], [partner])
        self.payload_bytes += payload.numel() + SIZE_BYTES
        self.sent_bytes += payload.numel() + SIZE_BYTES
        return received
