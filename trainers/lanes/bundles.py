"""Bundles of payloads for one receiver, and the reusable buffers of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainers.lanes.parcel import Parcel
from trainers.mpi import staging
from trainers.mpi.message_sizes import ALIGNMENT, align

if TYPE_CHECKING:
    from mpi4py import MPI


class Bundle:
    """The payloads of some units, one after another, each at a multiple of ALIGNMENT bytes."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.sizes: list[int] = []
        self.used = 0
        self._buffer = torch.zeros(0, dtype=torch.uint8)

    def begin(self, buffer: torch.Tensor) -> None:
        """Start a message in `buffer`: (n,) uint8, aligned to ALIGNMENT, long enough for every payload."""
        self.parcels, self.sizes, self.used = [], [], 0
        self._buffer = buffer

    def add(self, parcel: Parcel) -> torch.Tensor:
        """Encode a unit after the others; return its payload, a view of the buffer."""
        payload = parcel.compressor.compress(parcel.x, parcel.key, self._buffer[self.used :])
        self.parcels.append(parcel)
        self.sizes.append(payload.numel())
        end = self.used + payload.numel()
        self.used += align(payload.numel())
        self._buffer[end : self.used] = 0
        return payload

    def payloads(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        """Yield the encoded units with their payloads."""
        offset = 0
        for parcel, size in zip(self.parcels, self.sizes, strict=True):
            yield parcel, self._buffer[offset : offset + size]
            offset += align(size)

    def message(self) -> torch.Tensor:
        """Return all payloads, each padded to a multiple of ALIGNMENT."""
        return self._buffer[: self.used]


def sum_bounds(parcels: Sequence[Parcel]) -> int:
    """Return the largest size in bytes that the payloads of these units can have together."""
    return sum(align(parcel.compressor.payload_bound(parcel.x.shape)) for parcel in parcels)


def find_fixed_sizes(parcels: Sequence[Parcel]) -> list[int] | None:
    """Return the sizes of the payloads; None if a size depends on the data, so that sizes must be sent."""
    sizes = [parcel.compressor.payload_size(parcel.x.shape) for parcel in parcels]
    return None if None in sizes else [size for size in sizes if size is not None]


def _allocate_pages(size: int) -> torch.Tensor:
    return torch.from_numpy(np.empty(size, dtype=np.uint8))


class Room:
    """A reusable buffer of bytes, which is replaced by a larger one if necessary.

    Args:
        allocate: returns a buffer of so many bytes; by default in main memory.
    """

    def __init__(self, allocate: Callable[[int], torch.Tensor] = _allocate_pages) -> None:
        self._allocate = allocate
        self._bytes = allocate(0)

    def get(self, size: int) -> torch.Tensor:
        """Return (size,) uint8 with undefined content; it may share memory with earlier results."""
        if size > self._bytes.numel():
            self._bytes = self._allocate(size)
        return self._bytes[:size]

    def receive(self, comm: MPI.Comm, source: int, tag: int) -> torch.Tensor:
        """Wait for a message, whose size is a multiple of ALIGNMENT; return it as (n,) uint8 in this buffer."""
        from mpi4py import MPI

        status = MPI.Status()
        comm.Probe(source, tag, status)
        message = self.get(status.Get_count(MPI.INT32_T) * ALIGNMENT)
        comm.Recv(staging.get_words(message), source, tag)
        return message
