"""The lane of a parameter server: rank 0 gets every payload, forms the mean, and answers every worker with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from compressors import CorruptPayload
from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.bundles import Room, find_fixed_sizes, sum_bounds
from trainers.lanes.gathering import encode_sizes
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.two_phase import TwoPhaseLane
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import align

SERVER = 0


class ServerLane(TwoPhaseLane):
    """A lane that sends each worker's message to rank 0, which sends the answer W - 1 times, point to point.

    If the sizes of payloads depend on the data, the sizes (uint32 a unit) come before the payloads. Messages are
    decoded in the order of the ranks, so that a run can be repeated to the bit.
    """

    def __init__(self, comm: Group, watch: Stopwatch, selector: Selector, second: SecondPhase) -> None:
        super().__init__(comm, watch, selector, second, [SERVER] * len(selector.units))
        self._others = [worker for worker in range(comm.size) if worker != SERVER]
        self._rooms = [Room(comm.allocate) for _ in self._others]
        self._answer = Room(comm.allocate)

    def take_parcels(self, parcels: Sequence[Parcel]) -> None:
        """Set the parcels of a step, in place of `add`, on a dedicated server that has received their messages."""
        self.parcels[:] = parcels
        self.bundles[SERVER].parcels = list(parcels)

    def _lay_out(self, head: int = 0) -> None:
        super()._lay_out(head + 4 * len(self.owners))  # the sizes

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        message = self._make_message()
        if self.comm.rank == SERVER:
            self.form_mean([self.split_sizes(self.parcels, received) for received in (message, *self._collect())])
            self.prepare_answers()
            self._respond()
        else:
            self.prepare_answers()
            self._ask(message)
        yield from ()

    def _make_message(self) -> torch.Tensor:
        """Return the outgoing message, with the sizes of payloads in front if they depend on the data; count it."""
        bundle, start = self.bundles[SERVER], self.starts[SERVER]
        head = count_size_bytes(self.parcels)
        if head:
            self._message[start - head : start] = torch.from_numpy(encode_sizes(bundle.sizes).view(np.uint8))
        message = self._message[start - head : start + bundle.used]
        self.payload_bytes = message.numel()
        self.collectives.count("server")
        return message

    @staticmethod
    def split_sizes(parcels: Sequence[Parcel], message: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Split a message into the payloads and their sizes.

        Raises:
            CorruptPayload: the message is too short for the sizes.
        """
        lengths = find_fixed_sizes(parcels)
        if lengths is not None:
            return message, lengths
        head = 4 * len(parcels)
        if message.numel() < head:
            raise CorruptPayload(f"a message of {message.numel()} bytes for {len(parcels)} payloads with their sizes")
        return message[head:], message[:head].cpu().numpy().view(np.uint32).tolist()

    def _ask(self, message: torch.Tensor) -> None:
        """Send this worker's message and wait for the answer."""
        with self.watch("communicate"):
            self._send(message, [SERVER], self.parcels)
            (self._means,) = self._receive([self._answer], [SERVER], self.answered[SERVER])
        self.sent_bytes = message.numel()

    def _collect(self) -> list[torch.Tensor]:
        """Receive the messages of the other workers, in the order of ranks."""
        with self.watch("communicate"):
            return self._receive(self._rooms, self._others, self.parcels)

    def _respond(self) -> None:
        """Compress the mean again and send it to every worker."""
        self._means = self.encode_reply(self._answer)
        with self.watch("communicate"):
            self._send(self._means, self._others, self.answered[SERVER])
        self.sent_bytes = (self.comm.size - 1) * self._means.numel()

    def _send(self, message: torch.Tensor, targets: Sequence[int], parcels: Sequence[Parcel]) -> None:
        self.comm.swap(message, targets, [], [], count_size_bytes(parcels), torch.Tensor.numel)

    def _receive(self, rooms: Sequence[Room], sources: Sequence[int], parcels: Sequence[Parcel]) -> list[torch.Tensor]:
        """Wait for a message with payloads of these parcels from each of some workers."""
        head = count_size_bytes(parcels)
        buffers = [room.get(head + sum_bounds(parcels)) for room in rooms]

        def measure(message: torch.Tensor) -> int:
            return head + sum(map(align, self.split_sizes(parcels, message)[1]))

        lengths = self.comm.swap(self._message[:0], [], buffers, sources, head, measure)
        return [buffer[:length] for buffer, length in zip(buffers, lengths, strict=True)]

    def encode_reply(self, room: Room, flags: int = 0) -> torch.Tensor:
        """Compress the means into a message in `room`, after `flags` bytes that are left free; return the message.

        The sizes of the payloads come before the payloads if they depend on the data.
        """
        parcels = self.answered[SERVER]
        head = flags + count_size_bytes(parcels)
        buffer = room.get(head + sum_bounds(parcels))
        self.encode_answer(buffer[head:])
        if head > flags:
            buffer[flags:head] = torch.from_numpy(encode_sizes(self.answer.sizes).view(np.uint8))
        return buffer[: head + self.answer.used]

    def decode(self) -> None:
        parcels = self.answered[SERVER]
        body, lengths = self.split_sizes(parcels, self._means)
        self.decode_answers([(parcels, body, lengths)])


def count_size_bytes(parcels: Sequence[Parcel]) -> int:
    """Return the bytes of the sizes before the payloads of these units; 0 if the sizes do not depend on the data."""
    return 0 if find_fixed_sizes(parcels) is not None else 4 * len(parcels)
