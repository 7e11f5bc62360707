"""The lane of a parameter server: rank 0 gets every payload, forms the mean, and answers every worker with it.

With backup workers (Chen, Pan, Monga, Bengio and Jozefowicz, "Revisiting distributed synchronous SGD", 2016) the
server takes the first W - b messages of a step, its own among them, and drops those that come later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
from trainers.mpi import staging
from trainers.mpi.message_sizes import ALIGNMENT

if TYPE_CHECKING:
    from mpi4py import MPI

SERVER = 0
PUSH, TAKEN, ANSWER = 1, 2, 3
"""Tags: a worker's message; whether it was taken; the answer."""

FURTHEST_BEHIND = 4
"""Steps that a worker may be behind the server. The server then waits for it, so that pending messages stay bounded."""


@dataclasses.dataclass
class Receipt:
    """A worker's message that the server is receiving."""

    step: int
    worker: int
    request: MPI.Request
    room: Room
    buffer: torch.Tensor
    size: int = -1


@dataclasses.dataclass
class Reply:
    """An answer that is being sent to workers; its buffer is in use until every worker has received it."""

    room: Room
    requests: list[MPI.Request]


def take_free_reply(replies: list[Reply]) -> Reply:
    """Remove from `replies` a reply whose buffer is free, since every worker has received it; or make a new reply."""
    from mpi4py import MPI

    for number, reply in enumerate(replies):
        if MPI.Request.Testall(reply.requests):
            reply.requests.clear()
            return replies.pop(number)
    return Reply(Room(), [])


class ServerLane(TwoPhaseLane):
    """A lane that sends each worker's message to rank 0, which sends the answer W - 1 times, point to point.

    If the sizes of payloads depend on the data, the sizes (uint32 a unit) come before the payloads. With `backup`
    workers, four more bytes tell each worker whether the server has taken its message; if not, the worker's memory
    keeps the whole gradient. The mean is over the messages that were taken, with equal weights.

    Timing decides which messages are taken, so a run with backup workers cannot be repeated to the bit. A run without
    can, because messages are decoded in the order of the ranks.
    """

    def __init__(
        self, comm: MPI.Comm, watch: Stopwatch, selector: Selector, second: SecondPhase, *, backup: int = 0
    ) -> None:
        super().__init__(comm, watch, selector, second, [SERVER] * len(selector.units))
        self.backup = backup
        self._step = 0
        self._sending: MPI.Request | None = None
        self._receipts: list[Receipt] = []
        self._replies: list[Reply] = []
        self._rooms: list[Room] = []
        self._answer = Room()

    def begin(self) -> None:
        super().begin()
        self._step += 1

    def take_parcels(self, parcels: Sequence[Parcel]) -> None:
        """Set the parcels of a step, in place of `add`, on a dedicated server that has received their messages."""
        self.parcels[:] = parcels
        self.bundles[SERVER].parcels = list(parcels)

    def _lay_out(self, head: int = 0) -> None:
        super()._lay_out(head + 4 * len(self.owners))  # the sizes

    def add(self, parcel: Parcel) -> torch.Tensor | None:
        payload = super().add(parcel)
        return None if self.backup else payload

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        bundle = self.bundles[SERVER]
        message = self._prepend_sizes(bundle.sizes, self.starts[SERVER], bundle.used)
        self.payload_bytes = message.numel()
        self.collectives.count("server")
        taken = True
        if self.comm.rank == SERVER:
            messages = self._collect(message)
            if self.backup:
                yield from bundle.payloads()
            self.form_mean([self.split_sizes(self.parcels, received) for received in messages.values()])
            self.prepare_answers()
            self._respond(set(messages))
        else:
            self.prepare_answers()
            taken = self._ask(message)
            if self.backup and taken:
                yield from bundle.payloads()

    def _prepend_sizes(self, lengths: Sequence[int], start: int, used: int) -> torch.Tensor:
        """Return the outgoing message, with the sizes of payloads in front if they depend on the data."""
        if find_fixed_sizes(self.parcels) is not None:
            return self._message[start : start + used]
        head = torch.from_numpy(encode_sizes(lengths).view(np.uint8))
        self._message[start - head.numel() : start] = head
        return self._message[start - head.numel() : start + used]

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
        return message[head:], message[:head].numpy().view(np.uint32).tolist()

    # The workers' side

    def _ask(self, message: torch.Tensor) -> bool:
        """Send this worker's message and wait for the answer; return whether the server has taken the message."""
        from mpi4py import MPI

        taken = np.ones(1, dtype=np.int32)
        with self.watch("communicate"):
            pushed = self.comm.Isend(staging.get_words(message), SERVER, PUSH)
            if self.backup:
                self.comm.Recv([taken, MPI.INT32_T], SERVER, TAKEN)
            self._means = self._answer.receive(self.comm, SERVER, ANSWER)
            pushed.Wait()  # already received: the server answers after that
        self.sent_bytes = message.numel()
        return bool(taken[0])

    # The server's side

    def _collect(self, own: torch.Tensor) -> dict[int, torch.Tensor]:
        """Receive the messages that this step's mean is computed from; return them by worker, in the order of ranks."""
        taken = {SERVER: own}
        wanted = self.comm.size - self.backup
        with self.watch("communicate"):
            self._expect()
            while len(taken) < wanted or any(
                receipt.step <= self._step - FURTHEST_BEHIND for receipt in self._receipts
            ):
                receipt = self._next()
                if receipt.step == self._step:
                    taken[receipt.worker] = receipt.buffer[: receipt.size]
                self._rooms.append(receipt.room)  # reused from the next step on
        return dict(sorted(taken.items()))

    def _expect(self) -> None:
        """Post a receive for the message that every worker will send in this step.

        So a worker can complete its send even while the server waits in a collective.
        """
        bound = sum_bounds(self.parcels) + 4 * len(self.parcels)
        for worker in range(self.comm.size):
            if worker != SERVER:
                room = self._rooms.pop() if self._rooms else Room()
                buffer = room.get(bound)
                request = self.comm.Irecv(staging.get_words(buffer), worker, PUSH)
                self._receipts.append(Receipt(self._step, worker, request, room, buffer))

    def _next(self) -> Receipt:
        from mpi4py import MPI

        status = MPI.Status()
        index = MPI.Request.Waitany([receipt.request for receipt in self._receipts], status)
        receipt = self._receipts.pop(index)
        receipt.size = status.Get_count(MPI.INT32_T) * ALIGNMENT
        return receipt

    def _respond(self, taken: set[int]) -> None:
        """Compress the mean again and send it to every worker."""
        from mpi4py import MPI

        reply = take_free_reply(self._replies)
        self._means = self.encode_reply(reply.room)
        with self.watch("communicate"):
            for worker in range(self.comm.size):
                if worker == SERVER:
                    continue
                if self.backup:
                    flag = np.array([worker in taken], dtype=np.int32)
                    reply.requests.append(self.comm.Isend([flag, MPI.INT32_T], worker, TAKEN))
                reply.requests.append(self.comm.Isend(staging.get_words(self._means), worker, ANSWER))
            if not self.backup:
                MPI.Request.Waitall(reply.requests)
        self._replies.append(reply)
        self.sent_bytes = (self.comm.size - 1) * (self._means.numel() + (4 if self.backup else 0))

    def encode_reply(self, room: Room, flags: int = 0) -> torch.Tensor:
        """Compress the means into a message in `room`, after `flags` bytes that are left free; return the message.

        The sizes of the payloads come before the payloads if they depend on the data.
        """
        parcels = self.answered[SERVER]
        head = flags + (0 if find_fixed_sizes(parcels) is not None else 4 * len(parcels))
        buffer = room.get(head + sum_bounds(parcels))
        self.encode_answer(buffer[head:])
        if head > flags:
            buffer[flags:head] = torch.from_numpy(encode_sizes(self.answer.sizes).view(np.uint8))
        return buffer[: head + self.answer.used]

    def decode(self) -> None:
        parcels = self.answered[SERVER]
        body, lengths = self.split_sizes(parcels, self._means)
        self.decode_answers([(parcels, body, lengths)])
