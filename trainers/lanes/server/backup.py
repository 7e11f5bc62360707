"""The lane of a parameter server with backup workers, over MPI.

With b backup workers (Chen, Pan, Monga, Bengio and Jozefowicz, "Revisiting distributed synchronous SGD", 2016) the
server takes the first W - b messages of a step, its own among them, and drops those that come later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.bundles import Room, sum_bounds
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server.serving import SERVER, ServerLane
from trainers.mpi import staging
from trainers.mpi.group import MpiGroup
from trainers.mpi.message_sizes import ALIGNMENT

if TYPE_CHECKING:
    from mpi4py import MPI

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


class BackupLane(ServerLane):
    """A lane to a server that drops the last messages of each step.

    Four more bytes than without backup workers tell each worker whether the server has taken its message; if not, the
    worker's memory keeps the whole gradient. The mean is over the messages that were taken, with equal weights. Timing
    decides which they are, so that a run cannot be repeated to the bit.

    Args:
        backup: number of messages that are dropped.
    """

    def __init__(self, group: MpiGroup, watch: Stopwatch, selector: Selector, second: SecondPhase, backup: int) -> None:
        super().__init__(group, watch, selector, second)
        self.workers, self.backup = group.comm, backup
        self._step = 0
        self._receipts: list[Receipt] = []
        self._replies: list[Reply] = []
        self._free_rooms: list[Room] = []

    def begin(self) -> None:
        super().begin()
        self._step += 1

    def add(self, parcel: Parcel) -> None:
        super().add(parcel)

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        message = self._make_message()
        if self.comm.rank == SERVER:
            messages = self._take_first(message)
            yield from self.bundles[SERVER].payloads()
            self.form_mean([self.split_sizes(self.parcels, received) for received in messages.values()])
            self.prepare_answers()
            self._answer_all(set(messages))
        else:
            self.prepare_answers()
            if self._push(message):
                yield from self.bundles[SERVER].payloads()

    # The workers' side

    def _push(self, message: torch.Tensor) -> bool:
        """Send this worker's message and wait for the answer; return whether the server has taken the message."""
        from mpi4py import MPI

        taken = np.ones(1, dtype=np.int32)
        with self.watch("communicate"):
            pushed = self.workers.Isend(staging.get_words(message), SERVER, PUSH)
            self.workers.Recv([taken, MPI.INT32_T], SERVER, TAKEN)
            self._means = self._answer.receive(self.workers, SERVER, ANSWER)
            pushed.Wait()  # already received: the server answers after that
        self.sent_bytes = message.numel()
        return bool(taken[0])

    # The server's side

    def _take_first(self, own: torch.Tensor) -> dict[int, torch.Tensor]:
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
                self._free_rooms.append(receipt.room)  # reused from the next step on
        return dict(sorted(taken.items()))

    def _expect(self) -> None:
        """Post a receive for the message that every worker will send in this step.

        So a worker can complete its send even while the server waits in a collective.
        """
        bound = sum_bounds(self.parcels) + 4 * len(self.parcels)
        for worker in self._others:
            room = self._free_rooms.pop() if self._free_rooms else Room()
            buffer = room.get(bound)
            request = self.workers.Irecv(staging.get_words(buffer), worker, PUSH)
            self._receipts.append(Receipt(self._step, worker, request, room, buffer))

    def _next(self) -> Receipt:
        from mpi4py import MPI

        status = MPI.Status()
        index = MPI.Request.Waitany([receipt.request for receipt in self._receipts], status)
        receipt = self._receipts.pop(index)
        receipt.size = status.Get_count(MPI.INT32_T) * ALIGNMENT
        return receipt

    def _answer_all(self, taken: set[int]) -> None:
        """Compress the mean again and send it to every worker."""
        from mpi4py import MPI

        reply = take_free_reply(self._replies)
        self._means = self.encode_reply(reply.room)
        with self.watch("communicate"):
            for worker in self._others:
                flag = np.array([worker in taken], dtype=np.int32)
                reply.requests.append(self.workers.Isend([flag, MPI.INT32_T], worker, TAKEN))
                reply.requests.append(self.workers.Isend(staging.get_words(self._means), worker, ANSWER))
        self._replies.append(reply)
        self.sent_bytes = (self.comm.size - 1) * (self._means.numel() + 4)
