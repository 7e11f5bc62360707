"""The loop of a dedicated server."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from compressors import Key
from trainers.lanes.bundles import Room, count_words
from trainers.lanes.parcel import Parcel
from trainers.lanes.server_link import (
    ANSWER,
    CONTROL,
    END,
    FIGURES,
    FLAG_BYTES,
    HEAD_BYTES,
    LOAD,
    PARAMETERS,
    REPLY,
    STATE,
    STOP,
    TAKEN,
    Head,
)
from trainers.mpi import stopping
from trainers.mpi.message_sizes import ALIGNMENT
from trainers.optimizers.update import UpdateSetup

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclasses.dataclass
class Answer:
    """What is on its way to workers, in a buffer that is taken until they have it."""

    room: Room
    requests: list[MPI.Request]


class Server(ABC):
    """Takes what comes in, whoever sends it.

    It never waits for one worker, so that none waits for another because of it, unless that is the rule: a worker that
    is not to go on yet is answered later.

    Args:
        world: of which it is the rank `workers`.
    """

    def __init__(self, world: MPI.Comm, workers: int, setup: UpdateSetup, seed: int) -> None:
        self.world, self.workers, self.setup, self.seed = world, workers, setup, seed
        self.rooms: list[Room] = []  # free
        self._answers: list[Answer] = []

    @abstractmethod
    def on_push(self, worker: int, head: Head, body: torch.Tensor, room: Room) -> None:
        """A worker's message has come, without its head in `body`; `room` is to be given back to `rooms` after it."""

    def on_parameters_request(self, worker: int) -> None:
        """A worker wants the newest parameters."""
        raise RuntimeError("this server has no parameters")

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """A copy of what it remembers from step to step."""

    @abstractmethod
    def load_state_dict(self, state: Any) -> None:
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is something else.
        """

    def figures(self) -> dict[str, Any]:
        """What result.json says of it."""
        return {}

    def run(self) -> dict[str, Any]:
        """Serve until worker 0 says that all are done; returns what it says."""
        from mpi4py import MPI

        status = MPI.Status()
        while True:
            self.world.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            worker = status.Get_source()
            if status.Get_tag() == CONTROL:
                question, value = self.world.recv(source=worker, tag=CONTROL)
                if question == END:
                    break
                self._control(worker, question, value)
                continue
            size = status.Get_count(MPI.INT32_T) * ALIGNMENT
            room = self.rooms.pop() if self.rooms else Room()
            message = room.get(size)
            self.world.Recv([message.numpy(), count_words(size), MPI.INT32_T], worker, status.Get_tag())
            self.on_push(worker, Head.from_message(message), message[HEAD_BYTES:], room)
        for answer in self._answers:
            MPI.Request.Waitall(answer.requests)
        ended: dict[str, Any] = value
        return ended

    def _control(self, worker: int, question: str, value: Any) -> None:
        said: Any = None
        if question == PARAMETERS:
            self.on_parameters_request(worker)
            return
        if question == STATE:
            said = self.state_dict()
        elif question == FIGURES:
            said = self.figures()
        elif question == LOAD:
            try:
                self.load_state_dict(value)
            except (ValueError, KeyError, TypeError) as error:
                said = str(error) or type(error).__name__
        self.world.send(said, worker, REPLY)

    def make_parcels(self, head: Head) -> list[Parcel]:
        """The units of a step with their compressors, in the order in which workers put them into a message."""
        self.setup.selector.begin(head.step, head.epoch, head.lr)
        found = [
            Parcel(
                unit, self.setup.selector.selected[unit.index], Key(self.seed, 0, head.step, unit.index), unit.gradient
            )
            for unit in reversed(self.setup.units)
        ]
        # what workers have to agree on first comes last
        return sorted(found, key=lambda parcel: parcel.compressor.needs_agreement(parcel.key))

    def take_free_answer(self) -> Answer:
        """A buffer that nobody waits for any more; it is the caller's until it is sent."""
        from mpi4py import MPI

        for number, answer in enumerate(self._answers):
            if MPI.Request.Testall(answer.requests):
                answer.requests.clear()
                return self._answers.pop(number)
        return Answer(Room(), [])

    def send(self, answer: Answer, message: torch.Tensor, workers: Iterable[int], *, taken: bool = True) -> None:
        """Send a message from an answer's buffer to workers; its first FLAG_BYTES are free for the flags."""
        from mpi4py import MPI

        message[0] = (TAKEN if taken else 0) | (STOP if stopping.is_requested() else 0)
        message[1:FLAG_BYTES] = 0
        sent = [message.numpy(), count_words(message.numel()), MPI.INT32_T]
        self._answers.append(answer)
        answer.requests += [self.world.Isend(sent, worker, ANSWER) for worker in workers]
