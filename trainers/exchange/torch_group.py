"""A group of workers that torch.distributed connects, with the collectives that lanes execute on it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsweep.errors import UsageError
from trainers.mpi.group import Group

PATIENCE = datetime.timedelta(minutes=30)
"""After so long a collective gives up. Ranks that fail end the others by MPI, long before."""

_NO_COLOUR = 2**32 - 1

TAG = 0x6773
"""The tag of messages from worker to worker; not 0, which other users of the process group send by default."""


def check_available(backend: str, key: str, valid: str) -> None:
    """Raise UsageError if this torch lacks torch.distributed or the backend (gloo or nccl).

    Args:
        key: what asks for it, in the form key=value.
        valid: what works without it.
    """
    has = dist.is_available() and {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available}[backend]()
    if not has:
        raise UsageError(f"{key}: this torch ({torch.__version__}) has no {backend}; valid is {valid}")


class TorchGroup(Group):
    """The workers of a process group, and its collectives.

    Messages of different lengths are sent together, each from worker to worker, so that nothing is padded. No two
    threads may execute collectives of one group at the same time, because the workers would start them in different
    orders.

    Args:
        backend: `gloo`, whose messages lie in main memory, or `nccl`, whose messages lie on the GPU.
        device: of the messages.
        process_group: the workers; None: the default process group.
    """

    def __init__(
        self, backend: str, device: torch.device, rank: int, size: int, process_group: dist.ProcessGroup | None = None
    ) -> None:
        self.backend, self.device, self.rank, self.size = backend, device, rank, size
        self.process_group = process_group
        self._computing = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._unused: list[torch.Tensor] = []  # buffers of _add_halves, kept because fresh memory takes longer

    def allocate(self, size: int, *, added: torch.dtype | None = None) -> torch.Tensor:
        message = torch.empty(size, dtype=torch.uint8, device=self.device)
        if self._computing is not None and size:
            message.record_stream(self._computing)  # a lane may ask for it in the stream of its collectives
        return message

    def split(self, colour: int | None) -> TorchGroup | None:
        everyone = self.gather_numbers(np.array([_NO_COLOUR if colour is None else colour], np.uint32), [1] * self.size)
        own = None
        for each in sorted(set(everyone.tolist()) - {_NO_COLOUR}):  # all workers make all groups, in the same order
            workers = np.flatnonzero(everyone == each).tolist()
            part = dist.new_group([self._find_rank(worker) for worker in workers], PATIENCE, self.backend)
            if each == colour:
                own = TorchGroup(self.backend, self.device, workers.index(self.rank), len(workers), part)
        return own

    def duplicate(self) -> TorchGroup:
        """Return this group: only one thread executes collectives."""
        return self

    def free(self) -> None:
        """Do nothing: the process group lives on until the rank ends."""

    def try_sum(self, dtype: torch.dtype) -> None:
        """Sum a number over the workers; raise RuntimeError if the backend cannot add its type. All workers call
        this."""
        one = torch.ones(1, dtype=dtype, device=self.device)
        dist.all_reduce(one, group=self.process_group)
        one.cpu()  # an error of NCCL's is raised here, and not in some later call

    def add_up(self, tensor: torch.Tensor) -> None:
        if self.backend == "gloo" and self.size == 2 and tensor.dtype == torch.float16 and tensor.device == self.device:
            self._add_halves(tensor)
        else:
            self._replace(dist.all_reduce, tensor)

    def maximise(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by its elementwise maximum over the workers."""
        self._replace(dist.all_reduce, tensor, op=dist.ReduceOp.MAX)

    def _replace(self, collective: Callable[..., Any], tensor: torch.Tensor, **options: Any) -> None:
        """Replace a tensor by what a collective makes of it."""
        if not tensor.numel():
            return
        message = tensor.to(self.device)  # itself, unless gloo serves workers that compute on a GPU
        work = collective(message, group=self.process_group, async_op=True, **options)
        self.complete([work], None if message is tensor else lambda: tensor.copy_(message))

    def _add_halves(self, tensor: torch.Tensor) -> None:
        """Add the other worker's numbers. As many bytes are sent as by gloo's allreduce, which adds halves slowly."""
        fitting = [buffer for buffer in self._unused if buffer.shape == tensor.shape]
        theirs = fitting[0] if fitting else torch.empty_like(tensor)
        self._unused = [buffer for buffer in self._unused if buffer is not theirs]

        def add() -> None:
            tensor.add_(theirs)
            self._unused.append(theirs)

        self.complete(self._start([(1 - self.rank, tensor)], [(1 - self.rank, theirs)]), add)

    def reduce(self, tensor: torch.Tensor, root: int) -> None:
        self._replace(dist.reduce, tensor, dst=self._find_rank(root))

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        self._replace(dist.broadcast, tensor, src=self._find_rank(root))

    def gather(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        if self.backend == "gloo":  # in a half to a third of the time of its allgather
            self.gather_unequal(received, sent, [sent.numel()] * self.size)
        elif sent.numel():
            newer = getattr(dist, "all_gather_single", None)  # its name since torch 2.13
            collective = newer or dist.all_gather_into_tensor
            self.complete([collective(received, sent, group=self.process_group, async_op=True)])

    def gather_unequal(self, received: torch.Tensor, sent: torch.Tensor, lengths: Sequence[int]) -> None:
        messages = received.split(list(lengths))
        messages[self.rank].copy_(sent)
        others = [worker for worker in range(self.size) if worker != self.rank]
        self.complete(self._start([(worker, sent) for worker in others], [(w, messages[w]) for w in others]))

    def scatter(
        self,
        received: torch.Tensor,
        received_lengths: Sequence[int],
        sent: torch.Tensor,
        sent_lengths: Sequence[int],
        sent_starts: Sequence[int],
    ) -> None:
        parts = [sent[start : start + size] for start, size in zip(sent_starts, sent_lengths, strict=True)]
        self.complete(self._start(enumerate(parts), enumerate(received.split(list(received_lengths)))))

    def swap(
        self,
        sent: torch.Tensor,
        targets: Sequence[int],
        rooms: Sequence[torch.Tensor],
        sources: Sequence[int],
        head: int,
        measure: Callable[[torch.Tensor], int],
    ) -> list[int]:
        self.send_and_receive(sent[:head], targets, [room[:head] for room in rooms], sources)
        lengths = [measure(room[:head]) for room in rooms]
        rests = [room[head:length] for room, length in zip(rooms, lengths, strict=True)]
        self.send_and_receive(sent[head:], targets, rests, sources)
        return lengths

    def send_and_receive(
        self, sent: torch.Tensor, targets: Sequence[int], received: Sequence[torch.Tensor], sources: Sequence[int]
    ) -> None:
        """Send a tensor to each of `targets`, and receive one of known length from each of `sources`."""
        for work in self._start([(target, sent) for target in targets], zip(sources, received, strict=True)):
            work.wait()

    def _start(
        self, sent: Iterable[tuple[int, torch.Tensor]], received: Iterable[tuple[int, torch.Tensor]]
    ) -> list[Any]:
        """Begin to send messages to workers, and to receive theirs, all at once; empty ones do not travel."""
        operations = [
            dist.P2POp(operation, message, self._find_rank(worker), self.process_group, TAG)
            for operation, messages in ((dist.irecv, received), (dist.isend, sent))
            for worker, message in messages
            if message.numel()
        ]
        return dist.batch_isend_irecv(operations) if operations else []

    def complete(self, under_way: Iterable[Any], then: Callable[[], object] | None = None) -> None:
        """Wait for collectives and messages, and do what follows."""
        for work in under_way:
            work.wait()
        if then is not None:
            then()

    def _find_rank(self, worker: int) -> int:
        """Return the rank in the default process group."""
        return worker if self.process_group is None else dist.get_global_rank(self.process_group, worker)

    def close(self) -> None:
        """Disconnect the workers, if the group belongs to this object. All workers call this."""


class StartingGroup(TorchGroup):
    """A view of a group whose sums and gatherings go on after the call, until `settle`."""

    def __init__(self, group: TorchGroup) -> None:
        super().__init__(group.backend, group.device, group.rank, group.size, group.process_group)
        self._started: list[tuple[Iterable[Any], Callable[[], object] | None]] = []

    def complete(self, under_way: Iterable[Any], then: Callable[[], object] | None = None) -> None:
        self._started.append((under_way, then))

    def settle(self) -> None:
        started, self._started = self._started, []
        for under_way, then in started:
            super().complete(under_way, then)
