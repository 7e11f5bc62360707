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
from trainers.lanes.bundles import Room, count_words, find_fixed_sizes, sum_bounds
from trainers.lanes.gathering import encode_sizes
from trainers.lanes.parcel import Parcel
from trainers.lanes.second import SecondPhase
from trainers.lanes.two_phase import TwoPhaseLane
from trainers.mpi.message_sizes import ALIGNMENT

if TYPE_CHECKING:
    from mpi4py import MPI

SERVER = 0
PUSH, TAKEN, ANSWER = 1, 2, 3
"""Tags: a worker's message; whether it was taken; the mean."""

FURTHEST_BEHIND = 4
"""Steps that a worker may be behind the server: it is waited for then, so that what waits for it stays bounded."""


@dataclasses.dataclass
class Receipt:
    """A worker's message of a step that the server waits for."""

    step: int
    worker: int
    request: MPI.Request
    room: Room
    buffer: torch.Tensor
    size: int = -1


@dataclasses.dataclass
class Reply:
    """An answer, whose buffer is taken until every worker has it."""

    room: Room
    requests: list[MPI.Request]


class ServerLane(TwoPhaseLane):
    """Messages go point to point: each worker sends its own to rank 0, which sends W - 1 times the answer.

    Where sizes of payloads depend on the data, they stand (uint32 a unit) in front of the message. With `backup`
    workers four more bytes tell each worker whether its message was taken; a memory keeps everything of one that was
    not. The mean is that over the messages that were taken, each with the same weight.

    Which messages those are, the network decides: such a run cannot be repeated to the bit. The decoding goes by
    the workers' ranks, so without backup workers it can.
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
            bodies = [self.split_sizes(self.parcels, one) for one in messages.values()]
            self.form_mean([body for body, _ in bodies], [lengths for _, lengths in bodies])
            self.prepare_answers()
            self._respond(set(messages))
        else:
            self.prepare_answers()
            taken = self._ask(message)
            if self.backup and taken:
                yield from bundle.payloads()

    def _prepend_sizes(self, lengths: Sequence[int], start: int, used: int) -> torch.Tensor:
        """The outgoing message, with the sizes in front of it where the others cannot know them."""
        if find_fixed_sizes(self.parcels) is not None:
            return self._message[start : start + used]
        head = torch.from_numpy(encode_sizes(lengths).view(np.uint8))
        self._message[start - head.numel() : start] = head
        return self._message[start - head.numel() : start + used]

    @staticmethod
    def split_sizes(parcels: Sequence[Parcel], message: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """A message without the sizes in front of it, and the sizes.

        Raises:
            CorruptPayload: it is too short for them.
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
        """Send this worker's message and wait for the answer; returns whether the message was taken."""
        from mpi4py import MPI

        taken = np.ones(1, dtype=np.int32)
        with self.watch("communicate"):
            pushed = self.comm.Isend([message.numpy(), count_words(message.numel()), MPI.INT32_T], SERVER, PUSH)
            if self.backup:
                self.comm.Recv([taken, MPI.INT32_T], SERVER, TAKEN)
            status = MPI.Status()
            self.comm.Probe(SERVER, ANSWER, status)
            size = status.Get_count(MPI.INT32_T) * ALIGNMENT
            answer = self._answer.get(size)
            self.comm.Recv([answer.numpy(), count_words(size), MPI.INT32_T], SERVER, ANSWER)
            pushed.Wait()  # the server has waited for it since before it could answer
        self._means = answer
        self.sent_bytes = message.numel()
        return bool(taken[0])

    # The server's side

    def _collect(self, own: torch.Tensor) -> dict[int, torch.Tensor]:
        """The messages that are taken in this step, by worker, in the order of the ranks."""
        taken = {SERVER: own}
        wanted = self.comm.size - self.backup
        with self.watch("communicate"):
            self._expect()
            while len(taken) < wanted or any(one.step <= self._step - FURTHEST_BEHIND for one in self._receipts):
                receipt = self._next()
                if receipt.step == self._step:
                    taken[receipt.worker] = receipt.buffer[: receipt.size]
                self._rooms.append(receipt.room)  # free, but not before the next step asks for room
        return dict(sorted(taken.items()))

    def _expect(self) -> None:
        """Ask for the message that every worker will send in this step.

        A worker can rely on that: its messages get through also while the server waits in a collective.
        """
        from mpi4py import MPI

        bound = sum_bounds(self.parcels) + 4 * len(self.parcels)
        for worker in range(self.comm.size):
            if worker != SERVER:
                room = self._rooms.pop() if self._rooms else Room()
                buffer = room.get(bound)
                request = self.comm.Irecv([buffer.numpy(), count_words(bound), MPI.INT32_T], worker, PUSH)
                self._receipts.append(Receipt(self._step, worker, request, room, buffer))

    def _next(self) -> Receipt:
        from mpi4py import MPI

        status = MPI.Status()
        index = MPI.Request.Waitany([one.request for one in self._receipts], status)
        receipt = self._receipts.pop(index)
        receipt.size = status.Get_count(MPI.INT32_T) * ALIGNMENT
        return receipt

    def _respond(self, taken: set[int]) -> None:
        """Compress the mean again and send it to every worker."""
        from mpi4py import MPI

        reply = self._free_reply()
        parcels = self.answered[SERVER]
        known = find_fixed_sizes(parcels)
        head = 0 if known is not None else 4 * len(parcels)
        buffer = reply.room.get(head + sum_bounds(parcels))
        self.encode_answer(buffer[head:])
        if head:
            buffer[:head] = torch.from_numpy(encode_sizes(self.answer.sizes).view(np.uint8))
        self._means = buffer[: head + self.answer.used]
        with self.watch("communicate"):
            for worker in range(self.comm.size):
                if worker == SERVER:
                    continue
                if self.backup:
                    told = np.array([worker in taken], dtype=np.int32)
                    reply.requests.append(self.comm.Isend([told, MPI.INT32_T], worker, TAKEN))
                message = [self._means.numpy(), count_words(self._means.numel()), MPI.INT32_T]
                reply.requests.append(self.comm.Isend(message, worker, ANSWER))
            if not self.backup:
                MPI.Request.Waitall(reply.requests)
        self.sent_bytes = (self.comm.size - 1) * (self._means.numel() + (4 if self.backup else 0))

    def _free_reply(self) -> Reply:
        """A buffer for an answer that no worker waits for any more."""
        from mpi4py import MPI

        for reply in self._replies:
            if MPI.Request.Testall(reply.requests):
                reply.requests.clear()
                return reply
        self._replies.append(Reply(Room(), []))
        return self._replies[-1]

    def decode(self) -> None:
        parcels = self.answered[SERVER]
        body, lengths = self.split_sizes(parcels, self._means)
        self.decode_answers(iter([(parcels, body, lengths)]))
