"""How payloads become the mean gradient on every worker.

One step of an exchange: `begin`, then `submit` for each unit in the order in which backward
completes them, then `finish`, after which every unit's gradient is the mean over the workers of what
was submitted, decoded. `submit` adds what memory withheld and encodes straight into the outgoing
message; all units of a step travel in one message, so a step costs one collective's latency.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch

from compressors import Compressor, CorruptPayload, Key
from compressors.memory import Memory
from trainers import config as options
from trainers.flat import Unit
from trainers.stopwatch import MEASURE, Stopwatch

if TYPE_CHECKING:
    from mpi4py import MPI

ALIGNMENT = 4  # bytes: a payload starts where a kernel may read a float32


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one step put on the wire, for this worker.

    `payload_bytes` is its message, everything included that the others need to decode it;
    `sent_bytes` what it sent in all, by the collective's algorithm (see the exchange's docstring).
    `compression_error` is ||x - Q(x)|| / ||x|| over all units, None where it was not measured.
    """

    payload_bytes: int
    sent_bytes: float
    compression_error: float | None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Exchange(ABC):
    """Owns the outgoing message and the order of its units; subclasses move it."""

    def __init__(
        self, comm: MPI.Comm, units: list[Unit], compressor: Compressor, memory: Memory, seed: int, watch: Stopwatch
    ) -> None:
        self.comm, self.units, self.compressor, self.memory = comm, units, compressor, memory
        self.seed, self.watch = seed, watch
        bound = sum(_aligned(compressor.payload_bound(unit.gradient.shape)) for unit in units)
        self._message = torch.zeros(bound, dtype=torch.uint8)
        self._sizes = np.zeros(len(units), dtype=np.int32)  # of the payloads, in the order of submission
        self._order: list[Unit] = []

    def mean(self, step: int, *, measure: bool = False) -> Traffic:
        """Replace every unit's gradient by the mean over the workers of its compressed form."""
        self.begin(step, measure=measure)
        for unit in reversed(self.units):
            self.submit(unit)
        return self.finish()

    def begin(self, step: int, *, measure: bool = False) -> None:
        """Start a step; with `measure`, the compression error is computed on the way."""
        self._step, self._measure = step, measure
        self._order.clear()
        self._used = 0
        self._error = self._norm = 0.0

    def submit(self, unit: Unit) -> None:
        """Encode the unit's gradient into the message. Every worker submits in the same order."""
        with self.watch("encode"):
            x = self.memory.compensate(unit.index, unit.gradient)
            key = Key(self.seed, self.comm.rank, self._step, unit.index)
            payload = self.compressor.compress(x, key, self._message[self._used :])
            self._sizes[len(self._order)] = payload.numel()
            self._order.append(unit)
            self._used += _aligned(payload.numel())
        if self._measure:
            with self.watch(MEASURE):
                self._norm += float(x.double().square().sum())
                rest = x.double()
                self.compressor.decompress_add(payload, rest, key, -1.0)
                self._error += float(rest.square().sum())
        with self.watch("encode"):
            self.memory.update(key, x, payload, self.compressor)

    @abstractmethod
    def finish(self) -> Traffic:
        """Complete the step: communicate, and decode the mean into every unit's gradient."""

    def _relative_error(self) -> float | None:
        if not self._measure:
            return None
        return (self._error / self._norm) ** 0.5 if self._norm else 0.0

    def _decode(self, message: torch.Tensor, sizes: np.ndarray, weight: float) -> None:
        offset = 0
        for unit, size in zip(self._order, sizes.tolist(), strict=True):
            if not 0 <= size <= message.numel() - offset:
                raise CorruptPayload(f"{unit.name}: a payload of {size} bytes in a message of {message.numel()}")
            key = Key(self.seed, 0, self._step, unit.index)
            self.compressor.decompress_add(message[offset : offset + size], unit.gradient, key, weight)
            offset += _aligned(size)

    def _clear(self) -> None:
        for unit in self._order:
            unit.gradient.zero_()


class Allreduce(Exchange):
    """The network sums the payloads as float32 vectors, in place.

    By a ring (Patarasuk and Yuan, 2009) each worker sends 2 (W - 1) / W times its message.
    """

    def finish(self) -> Traffic:
        from mpi4py import MPI

        workers = self.comm.size
        with self.watch("communicate"):
            self.comm.Allreduce(MPI.IN_PLACE, [self._message.numpy()[: self._used].view(np.float32), MPI.FLOAT])
        with self.watch("decode"):
            self._clear()
            self._decode(self._message[: self._used], self._sizes, 1.0 / workers)
        return Traffic(self._used, 2 * (workers - 1) / workers * self._used, self._relative_error())


class Allgather(Exchange):
    """Every worker gets every message and decodes all of them: each sends W - 1 messages' bytes.

    Where a payload's size depends on the data, the sizes (int32 a unit) are gathered first; they
    count as part of the message.
    """

    def __init__(
        self, comm: MPI.Comm, units: list[Unit], compressor: Compressor, memory: Memory, seed: int, watch: Stopwatch
    ) -> None:
        super().__init__(comm, units, compressor, memory, seed, watch)
        self._fixed = all(compressor.payload_size(unit.gradient.shape) is not None for unit in units)
        self._all_sizes = np.zeros((comm.size, len(units)), dtype=np.int32)
        self._received = torch.empty(0, dtype=torch.uint8)

    def finish(self) -> Traffic:
        from mpi4py import MPI

        workers = self.comm.size
        with self.watch("communicate"):
            if self._fixed:
                self._all_sizes[:] = self._sizes
            else:
                self.comm.Allgather(self._sizes, self._all_sizes)
            lengths = (-(-self._all_sizes.astype(np.int64) // ALIGNMENT) * ALIGNMENT).sum(axis=1)
            starts = np.concatenate(([0], lengths.cumsum()))
            if starts[-1] > self._received.numel():
                self._received = torch.empty(int(starts[-1]), dtype=torch.uint8)
            sent = [self._message.numpy()[: self._used], MPI.BYTE]
            received = self._received.numpy()[: starts[-1]]
            if self._fixed:
                self.comm.Allgather(sent, [received, self._used, MPI.BYTE])
            else:
                self.comm.Allgatherv(sent, [received, lengths, starts[:-1], MPI.BYTE])
        with self.watch("decode"):
            self._clear()
            for worker in range(workers):
                message = self._received[starts[worker] : starts[worker + 1]]
                self._decode(message, self._all_sizes[worker], 1.0 / workers)
        payload = self._used + (0 if self._fixed else self._sizes.nbytes)
        return Traffic(payload, float((workers - 1) * payload), self._relative_error())


def build(
    config: options.Exchange,
    comm: MPI.Comm,
    units: list[Unit],
    compressor: Compressor,
    memory: Memory,
    seed: int,
    watch: Stopwatch,
) -> Exchange:
    """The exchange that `config` names; `auto` has been resolved before a run starts."""
    cls = Allreduce if isinstance(config, options.Allreduce) else Allgather
    return cls(comm, units, compressor, memory, seed, watch)
