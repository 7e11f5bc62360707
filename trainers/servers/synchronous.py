"""The server that forms the mean of every step's gradients, as worker 0 does with exchange.placement=colocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from compressors import unit_state
from trainers.config.run_config import RunConfig
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.unit_owners import build_second_memory
from trainers.lanes.bundles import Room
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server.backup import FURTHEST_BEHIND
from trainers.lanes.server.server_link import FLAG_BYTES, Head
from trainers.lanes.server.serving import SERVER, ServerLane
from trainers.mpi.group import MpiGroup
from trainers.optimizers.update import UpdateSetup
from trainers.servers.base import Server

if TYPE_CHECKING:
    from mpi4py import MPI


class SynchronousServer(Server):
    """A server that answers all workers with the mean of a step's messages, dense or compressed again.

    With b backup workers, the first W - b messages count. Messages are added in the order of the workers, and the mean
    is compressed with the random numbers of worker 0, so that the numbers are those of a colocated server to the bit.
    """

    def __init__(self, world: MPI.Comm, config: RunConfig, setup: UpdateSetup) -> None:
        from mpi4py import MPI

        super().__init__(world, config.workers, setup, config.seed)
        options = config.exchange
        kept = build_second_memory(options.second_memory, config.memory)
        self.second = SecondPhase(len(setup.units), again=options.answer == "compressed", memory=kept)
        self.lane = ServerLane(MpiGroup(MPI.COMM_SELF), Stopwatch(), setup.selector, self.second)
        self.wanted = config.workers - options.backup
        self.observes = config.policy.accordion.option is not None
        self._head: Head | None = None  # of the step whose messages are coming
        self._answered = 0  # the last step that was answered
        self._taken: dict[int, tuple[torch.Tensor, Room]] = {}
        self._last: dict[int, int] = {}  # by worker: the last step that has come
        self._parcels: list[Parcel] = []

    def on_push(self, worker: int, head: Head, body: torch.Tensor, room: Room) -> None:
        if not self._last:
            self._last = dict.fromkeys(range(self.workers), head.step - 1)
        self._last[worker] = head.step
        if head.step <= self._answered:  # the answer was sent without it
            self.rooms.append(room)
        else:
            if self._head is None:
                self._begin(head)
            self._taken[worker] = body, room
        enough = len(self._taken) >= self.wanted
        if self._head is not None and enough and min(self._last.values()) > self._head.step - FURTHEST_BEHIND:
            self._answer()
            self._answered = self._head.step
            self._head = None

    def _begin(self, head: Head) -> None:
        self._head = head
        self._parcels = self.make_parcels(head)
        self.second.begin(head.lr)

    def _answer(self) -> None:
        """Send the mean of the accepted messages to every worker."""
        lane, parcels = self.lane, self._parcels
        lane.take_parcels(parcels)
        lane.form_mean([lane.split_sizes(parcels, body) for _, (body, _) in sorted(self._taken.items())])
        lane.prepare_answers()
        answer = self.take_free_answer()
        message = lane.encode_reply(answer.room, FLAG_BYTES)
        late = [worker for worker in range(self.workers) if worker not in self._taken]
        if late:
            other = self.take_free_answer()
            copied = other.room.get(message.numel())
            copied.copy_(message)
            self.send(other, copied, late, taken=False)
        self.send(answer, message, self._taken)
        if self.observes:
            self._observe(lane.answered[SERVER], message[FLAG_BYTES:])
        self.rooms += [room for _, room in self._taken.values()]
        self._taken.clear()

    def _observe(self, answered: list[Parcel], message: torch.Tensor) -> None:
        """Decode the answer as workers do, and pass it to the selector, whose next choices depend on it."""
        body, lengths = self.lane.split_sizes(answered, message)
        self.lane.decode_answers([(answered, body, lengths)])
        for parcel in self._parcels:
            parcel.compressor.finish(parcel.unit.gradient, parcel.key, self.workers)
            self.setup.selector.observe(parcel.unit.index, parcel.unit.gradient)

    def state_dict(self) -> dict[str, Any]:
        return {"selector": self.setup.selector.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        unit_state.require_keys("a synchronous server", state, ("selector", "second"))
        self.setup.selector.check_state(state["selector"])
        self.second.load_state_dict(state["second"])
        self.setup.selector.load_state_dict(state["selector"])
