"""The exchange of decentralised algorithms: a worker exchanges messages with its neighbours only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from compressors import Compressor
from trainers.exchange.base import Exchange, ExchangeSetup, Traffic
from trainers.exchange.transport import Transport
from trainers.gradients.flat import Unit
from trainers.lanes.base import Lane
from trainers.lanes.collective_queue import ThreadCollectiveQueue
from trainers.lanes.decoding import Decoders
from trainers.lanes.neighbours import NeighbourLane, NeighbourMessage
from trainers.lanes.parcel import Parcel
from trainers.options import exchanges as options
from trainers.topology.mixing import Mixing


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
        """Return the part of the buffer that belongs to a unit of the model, in its shape."""
        return self.units[unit.index].gradient

    def add(self, parcel: Parcel, source: NeighbourMessage, weight: float) -> None:
        """Add the parcel's payload from `source`, times `weight`, to this buffer."""
        shadowed = dataclasses.replace(parcel, unit=self.units[parcel.unit.index])
        start, size = source.spans[parcel.unit.index]
        self.decoders([shadowed], source.message, start, start + size, [size], weight)


class Gossip(Exchange):
    """An exchange that sends each worker's payloads to its neighbours in `mixing`, and receives theirs.

    A step: `begin`, `submit` for each unit, `send`, `receive`. `submit` compresses the tensor in the unit's `gradient`.
    Until the next `begin`, `add_own` decodes a unit's own payload, and after `receive` `add_others` decodes its
    payloads from the neighbours. Both may be called repeatedly, into any buffer with the layout of the parameters.
    """

    def __init__(
        self, config: options.Gossip, setup: ExchangeSetup, mixing: Mixing, transport: Transport | None = None
    ) -> None:
        super().__init__(*setup, sums=False, gathers=True, overlap=config.overlap, transport=transport)
        self.mixing = mixing
        self.lane = NeighbourLane(self.transport.group, self.watch, mixing, self.collectives)
        self._lanes[None] = self.lane
        self._of: dict[int, Parcel] = {}

    @property
    def takes_early(self) -> bool:
        return False

    @property
    def overlaps(self) -> bool:
        """Whether messages travel while the rank computes."""
        return isinstance(self.collectives, ThreadCollectiveQueue)

    @property
    def step(self) -> int:
        """The step of the last message that was sent."""
        return self._step

    @property
    def own(self) -> float:
        """The weight of this worker's own parameters in the step of the last message."""
        return self.mixing.get_own_weight(self.comm.rank, self._turn)

    def _get_lane(self, compressor: Compressor) -> Lane:
        return self.lane

    def begin(
        self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False, turn: int | None = None
    ) -> None:
        """Start step `step` (from 1); its neighbours are those of step `turn` in `mixing`, by default of `step`."""
        self._turn = step if turn is None else turn
        self.lane.prepare_step(self._turn, len(self.units))
        super().begin(step, epoch=epoch, lr=lr, measure=measure)

    def submit(self, unit: Unit) -> None:
        super().submit(unit)
        self._of[unit.index] = self._parcels[-1]

    def send(self) -> None:
        """Send the submitted units to the neighbours."""
        with self.watch("communicate"):
            self.lane.send()

    def receive(self) -> None:
        """Wait for the messages of the neighbours; do nothing without messages in transit."""
        for _ in self.lane.communicate():
            pass

    def add_own(self, shadow: Shadow, unit: Unit, weight: float = 1.0) -> None:
        """Add `weight` times this worker's own decoded payload of the unit to `shadow`."""
        shadow.add(self._of[unit.index], self.lane.own, weight)

    def add_others(self, shadow: Shadow, unit: Unit, scale: float = 1.0) -> None:
        """Add scale sum_j w_ij Q_j to `shadow`: the decoded payloads Q_j of the neighbours j, in the order of j."""
        for other in self.lane.others:
            shadow.add(self._of[unit.index], other, other.weight * scale)

    def traffic(self) -> Traffic:
        """Return the traffic of the step."""
        return Traffic(self.lane.payload_bytes, self.lane.sent_bytes, self._compute_error())
