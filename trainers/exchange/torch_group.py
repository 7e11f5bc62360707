"""A group of workers that torch.distributed connects, with the collectives that lanes execute on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from gradsweep.errors import UsageError

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


class TorchGroup:
    """The workers of a process group, and its collectives.

    Lanes use it as they use a communicator of MPI: `rank` and `size` are those in the group. No two threads may execute
    collectives of one group at the same time, because the workers would start them in different orders.

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
        self._unused: list[torch.Tensor] = []  # buffers of _add_halves, kept because fresh memory takes longer

    def allocate(self, size: int) -> torch.Tensor:
        """Return a buffer of `size` bytes that the backend can read and write."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def try_sum(self, dtype: torch.dtype) -> None:
        """Sum a number over the workers; raise RuntimeError if the backend cannot add its type. All workers call
        this."""
        one = torch.ones(1, dtype=dtype, device=self.device)
        dist.all_reduce(one, group=self.process_group)
        one.cpu()  # an error of NCCL's is raised here, and not in some later call

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by its sum over the workers."""
        if self.backend == "gloo" and self.size == 2 and tensor.dtype == torch.float16 and tensor.device == self.device:
            self._add_halves(tensor)
        else:
            self._reduce(tensor, dist.ReduceOp.SUM)

    def maximise(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by its elementwise maximum over the workers."""
        self._reduce(tensor, dist.ReduceOp.MAX)

    def _reduce(self, tensor: torch.Tensor, operation: dist.ReduceOp.RedOpType) -> None:
        if not tensor.numel():
            return
        message = tensor.to(self.device)  # itself, unless gloo serves workers that compute on a GPU
        work = dist.all_reduce(message, operation, group=self.process_group, async_op=True)
        self.complete([work], None if message is tensor else lambda: tensor.copy_(message))

    def _add_halves(self, tensor: torch.Tensor) -> None:
        """Add the other worker's numbers. As many bytes are sent as by gloo's allreduce, which adds halves slowly."""
        fitting = [buffer for buffer in self._unused if buffer.shape == tensor.shape]
        theirs = fitting[0] if fitting else torch.empty_like(tensor)
        self._unused = [buffer for buffer in self._unused if buffer is not theirs]

        def add() -> None:
            tensor.add_(theirs)
            self._unused.append(theirs)

        self.complete(self._send_to_all([tensor, theirs] if self.rank == 0 else [theirs, tensor]), add)

    def gather(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        """Write the `sent` of all workers, which have the same length, one after another into `received`."""
        if not sent.numel():
            return
        if self.backend == "gloo":
            messages = received.view(self.size, -1).unbind()
            messages[self.rank].copy_(sent)
            self.gather_unequal(messages)
        else:
            newer = getattr(dist, "all_gather_single", None)  # its name since torch 2.13
            collective = newer or dist.all_gather_into_tensor
            self.complete([collective(received, sent, group=self.process_group, async_op=True)])

    def gather_unequal(self, messages: Sequence[torch.Tensor]) -> None:
        """Send this worker's entry of `messages` to all workers, and write theirs into their entries.

        With gloo each worker sends its message to each other one, in a half to a third of the time of its allgather.
        With NCCL each worker broadcasts its message. Nothing is padded.
        """
        if self.backend == "gloo":
            self.complete(self._send_to_all(messages))
            return
        self.complete(
            [
                dist.broadcast(message, self._find_rank(worker), group=self.process_group, async_op=True)
                for worker, message in enumerate(messages)
                if message.numel()
            ]
        )

    def _send_to_all(self, messages: Sequence[torch.Tensor]) -> list[Any]:
        """Begin to send this worker's entry to each other worker, and to receive theirs; empty ones do not travel."""
        others = [self._find_rank(worker) for worker in range(self.size) if worker != self.rank]
        own, group = messages[self.rank], self.process_group
        theirs = [message for worker, message in enumerate(messages) if worker != self.rank]
        received = zip(theirs, others, strict=True)
        under_way = [dist.irecv(message, rank, group, TAG) for message, rank in received if message.numel()]
        return under_way + [dist.isend(own, rank, group, TAG) for rank in others if own.numel()]

    def complete(self, under_way: Iterable[Any], then: Callable[[], object] | None = None) -> None:
        """Wait for collectives and messages, and do what follows."""
        for work in under_way:
            work.wait()
        if then is not None:
            then()

    def settle(self) -> None:
        """Wait for the collectives that `complete` has not waited for: none."""

    def scatter(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_lengths: Sequence[int],
        sent_lengths: Sequence[int],
    ) -> None:
        """Send to each worker its part of `sent`, and write the parts of all workers, in their order, into `received`.

        Args:
            received_lengths, sent_lengths: elements of the parts from and for each worker.
        """
        if self.size > 1:
            dist.all_to_all_single(received, sent, list(received_lengths), list(sent_lengths), group=self.process_group)

    def swap(self, partner: int, sent: torch.Tensor, received: torch.Tensor) -> None:
        """Send a tensor to a worker, and receive another from it; empty ones do not travel."""
        pairs = [(dist.isend, sent), (dist.irecv, received)]
        wanted = [
            dist.P2POp(operation, tensor, self._find_rank(partner), self.process_group)
            for operation, tensor in pairs
            if tensor.numel()
        ]
        for work in dist.batch_isend_irecv(wanted) if wanted else ():
            work.wait()

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
