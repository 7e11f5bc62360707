"""What a worker's neighbours get of a step, and what it gets of theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from compressors import Compressor
from trainers.exchange import Exchange, Parts, Traffic
from trainers.flat import Unit
from trainers.gossip.lane import NeighbourLane
from trainers.lanes.base import Lane, Parcel
from trainers.lanes.courier import ThreadCourier
from trainers.lanes.decoding import Decoders
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
        self.units = [
            dataclasses.replace(
                unit,
                gradient=values.as_strided(part.shape, part.stride(), part.storage_offset() + values.storage_offset()),
            )
            for unit in units
            for part in (unit.gradient,)
        ]
        self.decoders = Decoders()

    def of(self, unit: Unit) -> torch.Tensor:
        """The part that belongs to a unit of the model, in its shape."""
        return self.units[unit.index].gradient

    def meant(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """The same parcels, to be decoded into this buffer."""
        return [dataclasses.replace(parcel, unit=self.units[parcel.unit.index]) for parcel in parcels]


class Gossip(Exchange):
    """Each worker's payloads go to its neighbours in `mixing`, and theirs come to it.

    A step: `begin`, `submit` for each unit, whose gradient holds what is to be compressed, `leave`, `receive`. From
    then on, until the next `begin`, `add_own` and `add_others` decode what has been sent and what has come, as often as
    wanted and into whatever is laid out as the parameters are.
    """

    def __init__(self, config: options.Gossip, parts: Parts, mixing: Mixing) -> None:
        super().__init__(*parts, sums=False, gathers=True, overlap=config.overlap)
        self.mixing = mixing
        self.lane = NeighbourLane(self.comm, self.watch, mixing, self.courier)
        self._lanes[None] = self.lane

    @property
    def takes_early(self) -> bool:
        return False

    @property
    def overlaps(self) -> bool:
        """Messages travel while the rank goes on."""
        return isinstance(self.courier, ThreadCourier)

    @property
    def step(self) -> int:
        """Of which the last message is."""
        return self._step

    @property
    def own(self) -> float:
        """How much a worker's own parameters count in the step that has begun."""
        return self.mixing.own(self.comm.rank, self._step)

    def _lane(self, compressor: Compressor) -> Lane:
        return self.lane

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        self.lane.at(step, len(self.units))
        super().begin(step, epoch=epoch, lr=lr, measure=measure)

    def leave(self) -> None:
        """What has been submitted leaves for the neighbours."""
        with self.watch("communicate"):
            self.lane.leave()

    def receive(self) -> None:
        """What the neighbours have sent is here; nothing where nothing is on its way."""
        for _ in self.lane.communicate():
            pass

    def add_own(self, shadow: Shadow, weight: float = 1.0, *, replace: bool = False) -> None:
        """shadow += weight Q_i, of what this worker has submitted; `replace`: = instead of +=."""
        self.lane.decode_own(shadow.meant(self._parcels), shadow.decoders, weight, first=replace)

    def add_others(self, shadow: Shadow, scale: float = 1.0) -> None:
        """shadow += scale sum_j w_ij Q_j over the neighbours j, in the order of their numbers."""
        self.lane.decode_others(shadow.meant(self._parcels), shadow.decoders, scale)

    def traffic(self) -> Traffic:
        """What the step has put on the wire."""
        return Traffic(self.lane.payload_bytes, self.lane.sent_bytes, self._relative_error())
