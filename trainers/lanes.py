"""How the payloads of one step travel: a lane is one kind of collective with the message that goes through it.

An exchange puts every unit on one lane; all units on a lane travel together, so that a step costs one
collective's latency a lane. A lane counts what it sends as MPI does (a test holds it against Open MPI's own
count).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from compressors import Compressor, CorruptPayload, Key
from compressors.base import Cooperative, Reduction, Sum
from trainers.flat import Unit
from trainers.sizes import ALIGNMENT, LARGEST_COUNT, LARGEST_SIZE, aligned, allreduce_bytes, countable
from trainers.stopwatch import Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclasses.dataclass(frozen=True)
class Parcel:
    """A unit in a step: what is compressed of it (`x`), by what, and the random numbers for that."""

    unit: Unit
    compressor: Compressor
    key: Key
    x: torch.Tensor


class Lane(ABC):
    """One kind of collective. A step: `begin`, `add` for each of its units, `communicate`, `decode`."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch
        self.parcels: list[Parcel] = []
        self.payload_bytes = 0.0
        self.sent_bytes = 0.0

    def begin(self) -> None:
        """Forget the units of the step before."""
        self.parcels.clear()
        self.payload_bytes = self.sent_bytes = 0.0

    @abstractmethod
    def add(self, parcel: Parcel) -> torch.Tensor | None:
        """Take a unit; returns its payload, or None where that is known only after `communicate`."""

    @abstractmethod
    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """Move the message. Gives the payloads that `add` could not give yet."""

    @abstractmethod
    def decode(self) -> None:
        """Put the mean of what the workers have sent into the gradient of every unit."""


class MessageLane(Lane):
    """A lane whose payloads stand one behind the other in one message."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        super().__init__(comm, watch)
        self.message = torch.zeros(0, dtype=torch.uint8)
        self.sizes: list[int] = []
        self.used = 0

    def begin(self) -> None:
        super().begin()
        self.sizes.clear()
        self.used = 0

    def reserve(self, size: int) -> None:
        """Have room for a message of `size` bytes."""
        if size > self.message.numel():
            self.message = torch.zeros(size, dtype=torch.uint8)

    def add(self, parcel: Parcel) -> torch.Tensor:
        payload = parcel.compressor.compress(parcel.x, parcel.key, self.message[self.used :])
        self.parcels.append(parcel)
        self.sizes.append(payload.numel())
        end = self.used + payload.numel()
        self.used += aligned(payload.numel())
        self.message[end : self.used] = 0
        return payload

    def add_decoded(self, message: torch.Tensor, sizes: list[int], weight: float) -> None:
        """Accumulate the payloads of one message into the gradients.

        Raises:
            CorruptPayload: the sizes do not fit the message, or a payload cannot be one of its unit.
        """
        offset = 0
        for parcel, size in zip(self.parcels, sizes, strict=True):
            if not 0 <= size <= message.numel() - offset:
                name = parcel.unit.name
                raise CorruptPayload(f"{name}: a payload of {size} bytes in a message of {message.numel()}")
            payload = message[offset : offset + size]
            parcel.compressor.decompress_add(payload, parcel.unit.gradient, parcel.key, weight)
            offset += aligned(size)

    def clear_gradients(self) -> None:
        for parcel in self.parcels:
            parcel.unit.gradient.zero_()


class SumLane(MessageLane):
    """The network adds the payloads, as vectors of `dtype`, in place."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch, dtype: str) -> None:
        super().__init__(comm, watch)
        self.dtype = getattr(torch, dtype)
        self._kind, self._operation = _summation(dtype)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        from mpi4py import MPI

        itemsize = self._kind.Get_size()
        count = countable(self.used // itemsize, LARGEST_COUNT, "numbers in a sum of all workers")
        if count:
            with self.watch("communicate"):
                message = [self.message.numpy()[: self.used], count, self._kind]
                self.comm.Allreduce(MPI.IN_PLACE, message, self._operation)
        self.payload_bytes = self.used
        self.sent_bytes = allreduce_bytes(count, itemsize, self.comm.size)
        yield from ()

    def decode(self) -> None:
        with self.watch("decode"):
            self.clear_gradients()
            self.add_decoded(self.message[: self.used], self.sizes, 1.0 / self.comm.size)


_half_sums: dict[str, MPI.Op] = {}


def _summation(dtype: str) -> tuple[MPI.Datatype, MPI.Op]:
    """The MPI type and operation that add payloads of `dtype`. MPI has no half floats: torch adds those."""
    from mpi4py import MPI

    native = {"float32": MPI.FLOAT, "int8": MPI.INT8_T, "int32": MPI.INT32_T}
    if dtype in native:
        return native[dtype], MPI.SUM
    if dtype not in _half_sums:
        kind = getattr(torch, dtype)

        def add(theirs: Any, ours: Any, datatype: MPI.Datatype) -> None:
            if len(ours):
                torch.frombuffer(ours, dtype=kind).add_(torch.frombuffer(theirs, dtype=kind))

        _half_sums[dtype] = MPI.Op.Create(add, commute=True)
    return MPI.UINT16_T, _half_sums[dtype]


def payload_sizes(sizes: Sequence[int]) -> npt.NDArray[np.uint32]:
    """The sizes as they travel."""
    return np.array([countable(size, LARGEST_SIZE, "bytes in a payload") for size in sizes], dtype=np.uint32)


class GatherLane(MessageLane):
    """Every worker gets every message and decodes all of them: each sends its own W - 1 times.

    Where the size of a payload depends on the data, the sizes (uint32 a unit) are gathered first; they count
    as part of the message. MPI counts words of ALIGNMENT bytes, so that messages of some GiB can be told.
    """

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        super().__init__(comm, watch)
        self._received = torch.empty(0, dtype=torch.uint8)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        from mpi4py import MPI

        workers = self.comm.size
        fixed = all(p.compressor.payload_size(p.x.shape) is not None for p in self.parcels)
        sizes = payload_sizes(self.sizes)
        self._all_sizes = np.tile(sizes, (workers, 1))
        countable(self.used // ALIGNMENT, LARGEST_COUNT, f"words of {ALIGNMENT} bytes in a message")
        with self.watch("communicate"):
            if not fixed:
                self.comm.Allgather(sizes, self._all_sizes)
            lengths = (-(-self._all_sizes.astype(np.int64) // ALIGNMENT)).sum(axis=1)
            starts = np.concatenate(([0], lengths.cumsum()))
            countable(int(starts[-1]), LARGEST_COUNT, f"words of {ALIGNMENT} bytes in the messages of all workers")
            self._starts = starts * ALIGNMENT
            if self._starts[-1] > self._received.numel():
                self._received = torch.empty(int(self._starts[-1]), dtype=torch.uint8)
            sent = [self.message.numpy()[: self.used], self.used // ALIGNMENT, MPI.INT32_T]
            received = self._received.numpy()[: self._starts[-1]]
            if fixed:
                self.comm.Allgather(sent, [received, self.used // ALIGNMENT, MPI.INT32_T])
            else:
                self.comm.Allgatherv(sent, [received, lengths, starts[:-1], MPI.INT32_T])
        self.payload_bytes = self.used + (0 if fixed else sizes.nbytes)
        self.sent_bytes = (workers - 1) * self.payload_bytes
        yield from ()

    def decode(self) -> None:
        with self.watch("decode"):
            self.clear_gradients()
            for worker in range(self.comm.size):
                message = self._received[self._starts[worker] : self._starts[worker + 1]]
                self.add_decoded(message, self._all_sizes[worker].tolist(), 1.0 / self.comm.size)


class RoundsLane(Lane):
    """Units of a cooperative compressor, which says itself what is to be communicated, round by round."""

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
                    answer = self._sum(request.tensor)
                else:
                    answer = self._swap(request.partner, request.payload)
        yield from ((parcel, one.own) for parcel, one in zip(self.parcels, self._reductions, strict=True))

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        from mpi4py import MPI

        countable(tensor.numel(), LARGEST_COUNT, "numbers in a sum of all workers")
        self.comm.Allreduce(MPI.IN_PLACE, [tensor.numpy(), MPI.FLOAT])
        self.payload_bytes += 4 * tensor.numel()
        self.sent_bytes += allreduce_bytes(tensor.numel(), 4, self.comm.size)
        return tensor

    def _swap(self, partner: int | None, payload: torch.Tensor) -> torch.Tensor:
        from mpi4py import MPI

        if partner is None:
            return payload[:0]
        countable(payload.numel(), LARGEST_COUNT, "bytes in a message")
        sending = self.comm.Isend([payload.numpy(), MPI.BYTE], partner)
        status = MPI.Status()
        self.comm.Probe(partner, status=status)
        received = torch.empty(status.Get_count(MPI.BYTE), dtype=torch.uint8)
        self.comm.Recv([received.numpy(), MPI.BYTE], partner)
        sending.Wait()
        self.payload_bytes += payload.numel()
        self.sent_bytes += payload.numel()
        return received

    def decode(self) -> None:
        with self.watch("decode"):
            for parcel, reduction in zip(self.parcels, self._reductions, strict=True):
                gradient = parcel.unit.gradient.zero_()
                parcel.compressor.decompress_add(reduction.mean, gradient, parcel.key, reduction.weight)
