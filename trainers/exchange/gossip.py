"""What a worker's neighbours get of a step, and what it gets of theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from compressors import Compressor
from trainers.exchange.base import Exchange, ExchangeSetup, Traffic
from trainers.gradients.flat import Unit
from trainers.lanes.base import Lane
from trainers.lanes.collective_queue import ThreadCollectiveQueue
from trainers.lanes.decoding import Decoders
from trainers.lanes.neighbours import NeighbourLane, NeighbourMessage
from trainers.lanes.parcel import Parcel
from trainers.options import exchanges as options
from trainers.topology import Mixing


class Shadow:
    """A flat buffer laid out as the model's parameters, into which payloads are decoded.

    Args:
        units: of the model.
        values: (parameters,) float32, the buffer.
    """

    def __init__(self, units: Sequence[Unit], values: torch.Tensor) -> None:
        self.values = values
        views = [
            values.as_strided(part.shape, part.stride(), part.storage_offset() + values.storage_offset())
            for part in (unit.gradient for unit in units)
        ]
        self.units = [dataclasses.replace(unit, gradient=view) for unit, view in zip(units, views, strict=True)]
        self.decoders = Decoders()

    def view(self, unit: Unit) -> torch.Tensor:
        """The part that belongs to a unit of the model, in its shape."""
        return self.units[unit.index].gradient

    def add(self, parcel: Parcel, letter: NeighbourMessage, weight: float) -> None:
        """Accumulate the payload in `letter` for the parcel's unit."""
        meant = dataclasses.replace(parcel, unit=self.units[parcel.unit.index])
        start, size = letter.spans[parcel.unit.index]
        self.decoders([meant], letter.message, start, start + size, [size], weight)


class Gossip(Exchange):
    """Each worker's payloads go to its neighbours in `mixing`, and theirs come to it.

    A step: `begin`, `submit` for each unit, whose gradient is what is to be compressed, `send`, `receive`. From
    `submit` on, until the next `begin`, `add_own` decodes what has been sent of a unit, and from `receive` on
    `add_others` what has come: as often as wanted and into whatever is laid out as the parameters are.
    """

    def __init__(self, config: options.Gossip, setup: ExchangeSetup, mixing: Mixing) -> None:
        super().__init__(*setup, sums=False, gathers=True, overlap=config.overlap)
        self.mixing = mixing
        self.lane = NeighbourLane(self.comm, self.watch, mixing, self.collectives)
        self._lanes[None] = self.lane
        self._of: dict[int, Parcel] = {}

    @property
    def takes_early(self) -> bool:
        return False

    @property
    def overlaps(self) -> bool:
        """Messages travel while the rank goes on."""
        return isinstance(self.collectives, ThreadCollectiveQueue)

    @property
    def step(self) -> int:
        """Of which the last message is."""
        return self._step

    @property
    def own(self) -> float:
        """How much a worker's own parameters count in that step."""
        return self.mixing.own(self.comm.rank, self._step)

    def _get_lane(self, compressor: Compressor) -> Lane:
        return self.lane

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        self.lane.prepare_step(step, len(self.units))
        super().begin(step, epoch=epoch, lr=lr, measure=measure)

    def submit(self, unit: Unit) -> None:
        super().submit(unit)
        self._of[unit.index] = self._parcels[-1]

    def send(self) -> None:
        """What has been submitted leaves for the neighbours."""
        with self.watch("communicate"):
            self.lane.send()

    def receive(self) -> None:
        """What the neighbours have sent is here; nothing where nothing is on its way."""
        for _ in self.lane.communicate():
            pass

    def add_own(self, shadow: Shadow, unit: Unit, weight: float = 1.0) -> None:
        """shadow += weight Q_i, of what this worker has submitted."""
        shadow.add(self._of[unit.index], self.lane.own, weight)

    def add_others(self, shadow: Shadow, unit: Unit, scale: float = 1.0) -> None:
        """shadow += scale sum_j w_ij Q_j over the neighbours j, in the order of their numbers."""
        for letter in self.lane.others:
            shadow.add(self._of[unit.index], letter, letter.weight * scale)

    def traffic(self) -> Traffic:
        """What the step has put on the wire."""
        return Traffic(self.lane.payload_bytes, self.lane.sent_bytes, self._compute_error())
