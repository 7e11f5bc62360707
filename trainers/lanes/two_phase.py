"""Lanes whose units have owners: the owner forms the mean, compresses it again and sends it to all workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch

from compressors.message import Message
from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.base import Lane
from trainers.lanes.bundles import Bundle
from trainers.lanes.decoding import Decoders
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import align


class TwoPhaseLane(Lane):
    """The base of lanes that send payloads to the owners of their units: a bundle for each owner in one message.

    Args:
        owners: the rank that owns each unit, by index.
        second: compresses the means of this rank's units.
    """

    comm: Group

    def __init__(
        self,
        comm: Group,
        watch: Stopwatch,
        selector: Selector,
        second: SecondPhase,
        owners: Sequence[int],
    ) -> None:
        super().__init__(comm, watch)
        self.selector, self.second, self.owners = selector, second, owners
        self.bundles = {owner: Bundle() for owner in range(comm.size)}
        self.starts = [0] * (comm.size + 1)
        self.answer = Bundle()
        self._mean_decoders, self._answer_decoders = Decoders(), Decoders()
        self.answered: list[list[Parcel]] = []
        self._laid_out_for: list[object] | None = None
        self._message = comm.allocate(0)

    def begin(self) -> None:
        super().begin()
        if self._laid_out_for is not self.selector.selected:
            self._lay_out()
        for owner, bundle in self.bundles.items():
            bundle.begin(self._message[self.starts[owner] : self.starts[owner + 1]])

    def _lay_out(self, head: int = 0) -> None:
        """Reserve space in one message for the largest payloads of every owner's units, after `head` bytes."""
        bounds = [0] * self.comm.size
        for owner, compressor, (_, shape) in zip(self.owners, self.selector.selected, self.selector.units, strict=True):
            bounds[owner] += align(compressor.payload_bound(shape))
        self.starts = list(accumulate(bounds, initial=head))
        if self.starts[-1] > self._message.numel():
            self._message = self.comm.allocate(self.starts[-1])
        self._laid_out_for = self.selector.selected  # type: ignore[assignment]

    def add(self, parcel: Parcel) -> torch.Tensor | None:
        self.parcels.append(parcel)
        return self.bundles[self.owners[parcel.unit.index]].add(parcel)

    def form_mean(self, messages: Sequence[tuple[torch.Tensor, Sequence[int]]]) -> None:
        """Decode messages, given with the sizes of their payloads, and write their mean into this rank's gradients."""
        parcels = self.bundles[self.comm.rank].parcels
        with self.watch("decode"):
            for parcel in parcels:
                parcel.unit.gradient.zero_()
            for message, lengths in messages:
                self._mean_decoders(parcels, Message(message), 0, message.numel(), lengths, 1.0 / len(messages))
            for parcel in parcels:
                parcel.compressor.finish(parcel.unit.gradient, parcel.key, len(messages))

    def prepare_answers(self) -> None:
        """Make the parcels of the second phase for each owner, in the order in which it will send them."""
        self.answered = [
            [self.second.make_parcel(parcel, owner) for parcel in bundle.parcels]
            for owner, bundle in self.bundles.items()
        ]

    def encode_answer(self, buffer: torch.Tensor) -> None:
        """Compress the means of this rank's units into `buffer`, which must be large enough, as the answer."""
        with self.watch("encode"):
            parcels = self.answered[self.comm.rank]
            self.answer.begin(buffer)
            for parcel in parcels:
                compensated = self.second.compensate(parcel)
                self.second.keep_rest(compensated, self.answer.add(compensated))

    def decode_answers(self, answers: Iterable[tuple[list[Parcel], torch.Tensor, Sequence[int]]]) -> None:
        """Decode the owners' answers into the gradients of all units, which then have the same bits on all workers."""
        with self.watch("decode"):
            for parcel in self.parcels:
                parcel.unit.gradient.zero_()
            for parcels, message, lengths in answers:
                self._answer_decoders(parcels, Message(message), 0, message.numel(), lengths, 1.0)
