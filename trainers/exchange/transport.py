"""What carries the messages of an exchange: MPI, or what trainers/exchange/torch_transport.py has instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.courier import Courier, ThreadCourier
from trainers.lanes.gathering import GatherLane
from trainers.lanes.rounds import RoundsLane
from trainers.lanes.summing import SumLane

if TYPE_CHECKING:
    from mpi4py import MPI


class Transport:
    """Gives an exchange its lanes, and the courier that carries out their collectives. This one is MPI."""

    described: Mapping[str, str] = {}
    """What result.json says about it."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch

    def courier(self, overlap: bool) -> Courier:
        """One for all lanes of an exchange; with `overlap` it works while the rank goes on.

        Raises:
            UsageError: the MPI library does not allow calls from several threads.
        """
        return ThreadCourier(self.comm, self.watch) if overlap else Courier(self.comm, self.watch)

    def summing(self, dtype: str, courier: Courier) -> SumLane:
        """A lane of payloads that are added as numbers of `dtype`."""
        return SumLane(self.comm, self.watch, dtype, courier)

    def gathering(self, courier: Courier) -> GatherLane:
        """A lane of payloads that every worker gets."""
        return GatherLane(self.comm, self.watch, courier)

    def rounds(self, courier: Courier) -> RoundsLane:
        """A lane of units that a cooperative compressor reduces in rounds."""
        return RoundsLane(self.comm, self.watch, courier)

    def close(self) -> None:
        """The last message has been carried. All workers call this."""
