"""The lane to a dedicated parameter server: a worker pushes its message and gets the answer."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server.server_link import FLAG_BYTES, HEAD_BYTES, Head, Link
from trainers.lanes.server.serving import SERVER, ServerLane
from trainers.mpi.group import Group


class PushLane(ServerLane):
    """A lane that pushes messages to a synchronous server, which answers with their mean, compressed again or dense.

    `payload_bytes` is the size of the message without its head. `sent_bytes` is that of the message with its head plus
    that of the server's answer, so that the sum over the workers is the whole traffic.

    Args:
        comm: the workers.
        backup: messages that the server drops in each step.
    """

    def __init__(
        self, comm: Group, watch: Stopwatch, selector: Selector, second: SecondPhase, link: Link, *, backup: int = 0
    ) -> None:
        super().__init__(comm, watch, selector, second)
        self.link, self.backup = link, backup
        self.head = Head(0, 0, 0.0, 0.0, 0.0)

    def _lay_out(self, head: int = 0) -> None:
        super()._lay_out(head + HEAD_BYTES)

    def add(self, parcel: Parcel) -> torch.Tensor | None:
        payload = super().add(parcel)
        return None if self.backup else payload

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.prepare_answers()
        taken = self._push()
        if self.backup and taken:
            yield from self.bundles[SERVER].payloads()

    def _push(self) -> bool:
        """Send this worker's message and wait for the answer; return whether the message counted, or was dropped."""
        body = self._make_message()
        start = body.storage_offset() - HEAD_BYTES
        message = self._message[start : start + HEAD_BYTES + body.numel()]
        message[:HEAD_BYTES] = self.head.bytes()
        with self.watch("communicate"):
            taken, self._means = self.link.push(message)
        self.sent_bytes = message.numel() + FLAG_BYTES + self._means.numel()
        return taken


class ParametersLane(PushLane):
    """A lane that pushes messages to an asynchronous server, whose newest parameters replace this worker's."""

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self._push()
        yield from ()

    @torch.no_grad()
    def decode(self) -> None:
        with self.watch("decode"):
            self.write_parameters(self._means.view(torch.float32))

    def write_parameters(self, parameters: torch.Tensor) -> None:
        """Write parameters, (n,) float32 in the order of the units, into the units of this step."""
        offset = 0
        for parcel in sorted(self.parcels, key=lambda parcel: parcel.unit.index):
            values = parcel.unit.values
            values.copy_(parameters[offset : offset + values.numel()].view(values.shape))
            offset += values.numel()
