"""The workers that lanes connect, and the collectives by which lanes send messages: an interface, and MPI's form of it.

The other form is that of torch.distributed (trainers/exchange/torch_group.py). Lanes use this interface only, so that
each lane is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from gradsweep.errors import bad_value
from trainers.mpi import staging
from trainers.mpi.message_sizes import ALIGNMENT, count_words

if TYPE_CHECKING:
    from mpi4py import MPI

    Numbers = npt.NDArray[np.uint32]

TAG = 1


class Group(ABC):
    """Some workers, and the collectives among them. A message is (n,) uint8, and n a multiple of ALIGNMENT.

    All workers of the group execute the same collectives in the same order. A `swap` concerns those only between which
    messages travel.

    Attributes:
        rank, size: of this worker in the group; of the group.
        device: where messages may lie with every transport of this kind.
    """

    rank: int
    size: int
    device: torch.device

    @abstractmethod
    def allocate(self, size: int, *, added: torch.dtype | None = None) -> torch.Tensor:
        """Allocate a message of `size` bytes; with `added`, one that `add_up` is to see as numbers of this type."""

    @abstractmethod
    def split(self, colour: int | None) -> Group | None:
        """Return the group of all workers that call this with the same colour; None: of none. All workers call this."""

    @abstractmethod
    def duplicate(self) -> Group:
        """Return the group for the collectives of another thread.

        Raises:
            UsageError: the library does not allow calls from several threads.
        """

    @abstractmethod
    def free(self) -> None:
        """Free a duplicate."""

    @abstractmethod
    def add_up(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by its sum over the workers."""

    @abstractmethod
    def reduce(self, tensor: torch.Tensor, root: int) -> None:
        """Replace worker `root`'s tensor by its sum over the workers. The others' content is undefined afterwards."""

    @abstractmethod
    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Replace a tensor by that of worker `root`."""

    @abstractmethod
    def gather(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        """Write the `sent` of all workers, which have the same length, one after another into `received`."""

    @abstractmethod
    def gather_unequal(self, received: torch.Tensor, sent: torch.Tensor, lengths: Sequence[int]) -> None:
        """Do the same where messages have different `lengths` in bytes, which all workers know."""

    @abstractmethod
    def scatter(
        self,
        received: torch.Tensor,
        received_lengths: Sequence[int],
        sent: torch.Tensor,
        sent_lengths: Sequence[int],
        sent_starts: Sequence[int],
    ) -> None:
        """Send to each other worker its part of `sent`, and write their parts one after another into `received`.

        Args:
            received_lengths: bytes from each worker; none of this one.
            sent_lengths, sent_starts: bytes for each worker, none for this one, and where they begin.
        """

    @abstractmethod
    def swap(
        self,
        sent: torch.Tensor,
        targets: Sequence[int],
        rooms: Sequence[torch.Tensor],
        sources: Sequence[int],
        head: int,
        measure: Callable[[torch.Tensor], int],
    ) -> list[int]:
        """Send a message to some workers, and receive one from others; return the bytes of those received.

        Args:
            targets, sources: the workers that get `sent`, and those that send to this one.
            rooms: buffers that are large enough for the message of each source.
            head: bytes with which every message begins.
            measure: returns the length of a whole message, from its head. Transports that know it do not call this.
        """

    def settle(self) -> None:
        """Wait for collectives that go on after the call: none."""
        return None

    def gather_numbers(self, own: Numbers, counts: Sequence[int]) -> Numbers:
        """Return the numbers of all workers, one worker's after another; worker i has counts[i]."""
        received = self._allocate_numbers(sum(counts))
        if len(set(counts)) == 1:
            self.gather(received, self._make_message(own))
        else:
            self.gather_unequal(received, self._make_message(own), [own.itemsize * count for count in counts])
        return self._read_numbers(received)

    def scatter_numbers(self, own: Numbers, counts: Sequence[int]) -> Numbers:
        """Send numbers to each other worker; return the others' numbers for this one, (workers - 1, counts[rank]).

        Args:
            own: numbers for all workers, one worker's after another; worker i gets counts[i].
        """
        mine, itemsize = counts[self.rank], own.itemsize
        is_other = [int(worker != self.rank) for worker in range(self.size)]
        received = self._allocate_numbers(mine * (self.size - 1))
        self.scatter(
            received,
            [itemsize * mine * other for other in is_other],
            self._make_message(own),
            [itemsize * count * other for count, other in zip(counts, is_other, strict=True)],
            [itemsize * start for start in accumulate(counts[:-1], initial=0)],
        )
        return self._read_numbers(received).reshape(self.size - 1, mine)

    def _allocate_numbers(self, count: int) -> torch.Tensor:
        return torch.empty(4 * count, dtype=torch.uint8, device=self.device)

    def _make_message(self, numbers: Numbers) -> torch.Tensor:
        return torch.from_numpy(numbers.view(np.uint8)).to(self.device)

    def _read_numbers(self, message: torch.Tensor) -> Numbers:
        self.settle()
        return message.cpu().numpy().view(np.uint32)


class MpiGroup(Group):
    """The workers of a communicator of MPI.

    MPI counts words of ALIGNMENT bytes, so that messages of several GiB are possible.
    """

    device = torch.device("cpu")

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def allocate(self, size: int, *, added: torch.dtype | None = None) -> torch.Tensor:
        own_sum = added is not None and not _get_summation(added)[1].is_predefined  # done by the CPU
        return staging.allocate_message(size, host=own_sum)

    def split(self, colour: int | None) -> MpiGroup | None:
        from mpi4py import MPI

        part = self.comm.Split(MPI.UNDEFINED if colour is None else colour, self.rank)
        return None if colour is None else MpiGroup(part)

    def duplicate(self) -> MpiGroup:
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            library = MPI.Get_library_version().splitlines()[0]
            raise bad_value("exchange.overlap", True, f"false where MPI has no MPI_THREAD_MULTIPLE ({library})")
        return MpiGroup(self.comm.Dup())

    def free(self) -> None:
        self.comm.Free()

    def add_up(self, tensor: torch.Tensor) -> None:
        from mpi4py import MPI

        kind, operation = _get_summation(tensor.dtype)
        buffer = staging.get_mpi_buffer(tensor.view(torch.uint8))  # numpy has no bfloat16
        self.comm.Allreduce(MPI.IN_PLACE, [buffer, tensor.numel(), kind], operation)

    def reduce(self, tensor: torch.Tensor, root: int) -> None:
        from mpi4py import MPI

        host = staging.move_to_host(tensor)
        if self.rank == root:
            self.comm.Reduce(MPI.IN_PLACE, host.numpy(), MPI.SUM, root)
            tensor.copy_(host)
        else:
            self.comm.Reduce(host.numpy(), None, MPI.SUM, root)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        host = staging.move_to_host(tensor)
        self.comm.Bcast(host.numpy(), root)
        tensor.copy_(host)

    def gather(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        from mpi4py import MPI

        incoming = [staging.get_mpi_buffer(received), count_words(sent.numel()), MPI.INT32_T]
        self.comm.Allgather(staging.get_words(sent), incoming)

    def gather_unequal(self, received: torch.Tensor, sent: torch.Tensor, lengths: Sequence[int]) -> None:
        self.comm.Allgatherv(staging.get_words(sent), _cut_words(received, lengths, _list_starts(lengths)))

    def scatter(
        self,
        received: torch.Tensor,
        received_lengths: Sequence[int],
        sent: torch.Tensor,
        sent_lengths: Sequence[int],
        sent_starts: Sequence[int],
    ) -> None:
        self.comm.Alltoallv(
            _cut_words(sent, sent_lengths, sent_starts),
            _cut_words(received, received_lengths, _list_starts(received_lengths)),
        )

    def swap(
        self,
        sent: torch.Tensor,
        targets: Sequence[int],
        rooms: Sequence[torch.Tensor],
        sources: Sequence[int],
        head: int,
        measure: Callable[[torch.Tensor], int],
    ) -> list[int]:
        from mpi4py import MPI

        pairs = zip(rooms, sources, strict=True)
        incoming = [self.comm.Irecv(staging.get_words(room), source, TAG) for room, source in pairs]
        outgoing = [self.comm.Isend(staging.get_words(sent), target, TAG) for target in targets]
        states = [MPI.Status() for _ in incoming]
        MPI.Request.Waitall(incoming, states)
        MPI.Request.Waitall(outgoing)
        return [ALIGNMENT * state.Get_count(MPI.INT32_T) for state in states]


def _list_starts(lengths: Sequence[int]) -> list[int]:
    return list(accumulate(lengths, initial=0))[:-1]


def _cut_words(message: torch.Tensor, lengths: Sequence[int], starts: Sequence[int]) -> Any:
    """Return parts of a message, given in bytes, as a buffer for mpi4py."""
    from mpi4py import MPI

    counts, displacements = ([count_words(size) for size in sizes] for sizes in (lengths, starts))
    return [staging.get_mpi_buffer(message), counts, displacements, MPI.INT32_T]


_half_sums: dict[torch.dtype, MPI.Op] = {}


def _get_summation(dtype: torch.dtype) -> tuple[MPI.Datatype, MPI.Op]:
    """Return the MPI type and operation for sums of `dtype`. MPI has no half floats: torch adds them."""
    from mpi4py import MPI

    native = {torch.float32: MPI.FLOAT, torch.int8: MPI.INT8_T, torch.int32: MPI.INT32_T}
    if dtype in native:
        return native[dtype], MPI.SUM
    if dtype not in _half_sums:

        def add(theirs: Any, ours: Any, datatype: MPI.Datatype) -> None:
            if len(ours):
                torch.frombuffer(ours, dtype=dtype).add_(torch.frombuffer(theirs, dtype=dtype))

        _half_sums[dtype] = MPI.Op.Create(add, commute=True)
    return MPI.UINT16_T, _half_sums[dtype]
