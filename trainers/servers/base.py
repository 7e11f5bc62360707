"""The interface and the loop of a dedicated server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from compressors import Key
from trainers.lanes.bundles import Room
from trainers.lanes.parcel import Parcel
from trainers.lanes.server import server_link
from trainers.lanes.server.backup import Reply, take_free_reply
from trainers.mpi import staging, stopping
from trainers.optimizers.update import UpdateSetup

if TYPE_CHECKING:
    from mpi4py import MPI


class Server(ABC):
    """The base of servers, which handle the messages of all workers in the order of their arrival.

    A server never waits for a particular worker. Workers wait for each other only if the algorithm requires it: then
    the server answers them later.

    Args:
        world: all ranks; the server is the rank `workers`.
    """

    def __init__(self, world: MPI.Comm, workers: int, setup: UpdateSetup, seed: int) -> None:
        self.world, self.workers, self.setup, self.seed = world, workers, setup, seed
        self.rooms: list[Room] = []  # free
        self._answers: list[Reply] = []

    @abstractmethod
    def on_push(self, worker: int, head: server_link.Head, body: torch.Tensor, room: Room) -> None:
        """Handle a worker's message; afterwards append its buffer `room` to `rooms` for reuse.

        Args:
            head: the head of the message.
            body: the message without its head.
        """

    def on_parameters_request(self, worker: int) -> None:
        """Send the newest parameters to a worker."""
        raise RuntimeError("this server has no parameters")

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state that lasts from step to step."""

    @abstractmethod
    def load_state_dict(self, state: Any) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state does not fit.
        """

    def figures(self) -> dict[str, Any]:
        """Return the server's own figures for result.json."""
        return {}

    def run(self) -> dict[str, Any]:
        """Serve until worker 0 sends the end; return the end's content: status, reason, steps."""
        from mpi4py import MPI

        status = MPI.Status()
        while True:
            self.world.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            worker = status.Get_source()
            if status.Get_tag() == server_link.CONTROL:
                question, value = self.world.recv(source=worker, tag=server_link.CONTROL)
                if question == server_link.END:
                    break
                self._control(worker, question, value)
                continue
            room = self.rooms.pop() if self.rooms else Room()
            message = room.receive(self.world, worker, status.Get_tag())
            self.on_push(worker, server_link.Head.from_message(message), message[server_link.HEAD_BYTES :], room)
        for answer in self._answers:
            MPI.Request.Waitall(answer.requests)
        ended: dict[str, Any] = value
        return ended

    def _control(self, worker: int, question: str, value: Any) -> None:
        reply: Any = None
        if question == server_link.PARAMETERS:
            self.on_parameters_request(worker)
            return
        if question == server_link.STATE:
            reply = self.state_dict()
        elif question == server_link.FIGURES:
            reply = self.figures()
        elif question == server_link.LOAD:
            try:
                self.load_state_dict(value)
            except (ValueError, KeyError, TypeError) as error:
                reply = str(error) or type(error).__name__
        self.world.send(reply, worker, server_link.REPLY)

    def make_parcels(self, head: server_link.Head) -> list[Parcel]:
        """Make the parcels of a step in the order in which workers put them into a message."""
        self.setup.selector.begin(head.step, head.epoch, head.lr)
        parcels = [
            Parcel(
                unit, self.setup.selector.selected[unit.index], Key(self.seed, 0, head.step, unit.index), unit.gradient
            )
            for unit in reversed(self.setup.units)
        ]
        # workers encode units last for which they have to agree first
        return sorted(parcels, key=lambda parcel: parcel.compressor.needs_agreement(parcel.key))

    def take_free_answer(self) -> Reply:
        """Return an answer whose buffer is free, for the caller's use until `send`."""
        return take_free_reply(self._answers)

    def send(self, answer: Reply, message: torch.Tensor, workers: Iterable[int], *, taken: bool = True) -> None:
        """Send a message in the buffer of `answer` to workers; its first FLAG_BYTES are left free for flags."""
        message[0] = (server_link.TAKEN if taken else 0) | (server_link.STOP if stopping.is_requested() else 0)
        message[1 : server_link.FLAG_BYTES] = 0
        self._answers.append(answer)
        answer.requests += [
            self.world.Isend(staging.get_words(message), worker, server_link.ANSWER) for worker in workers
        ]
