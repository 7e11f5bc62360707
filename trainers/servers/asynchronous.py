"""The server that takes a step with every gradient, with bounded staleness.

Ho, Cipar, Cui, Lee, Kim, Gibbons, Gibson, Ganger and Xing, "More effective distributed ML via a stale synchronous
parallel parameter server" (SSP), NeurIPS 2013.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from compressors import unit_state
from compressors.message import Message
from trainers.gradients.flat import Flat
from trainers.lanes.bundles import Room
from trainers.lanes.decoding import Decoders
from trainers.lanes.server.server_link import FLAG_BYTES, Head
from trainers.lanes.server.serving import ServerLane
from trainers.optimizers.update import UpdateSetup
from trainers.servers.base import Server

if TYPE_CHECKING:
    from mpi4py import MPI


class AsynchronousServer(Server):
    """A server with the parameters and the optimizer, which answers a gradient with the updated parameters.

    A worker's clock is the number of steps that it has pushed. A worker whose clock is more than `staleness` ahead of
    the slowest one has to wait for its answer until the distance is smaller; other workers get theirs at once.

    The staleness of a gradient is the number of steps that the server has taken since it sent the parameters at which
    the gradient was computed.
    """

    def __init__(
        self, world: MPI.Comm, workers: int, flat: Flat, setup: UpdateSetup, seed: int, staleness: int
    ) -> None:
        super().__init__(world, workers, setup, seed)
        self.flat, self.staleness = flat, staleness
        self.clocks = [0] * workers
        self.steps = 0
        self.sent_at = [0] * workers  # by worker: the step of the parameters that it has
        self.stale_sum = self.stale_most = 0
        self.decoders = Decoders()
        self._waiting: list[int] = []

    @torch.no_grad()
    def on_push(self, worker: int, head: Head, body: torch.Tensor, room: Room) -> None:
        self._update(head, body)
        self.rooms.append(room)
        stale = self.steps - self.sent_at[worker]
        self.stale_sum, self.stale_most = self.stale_sum + stale, max(self.stale_most, stale)
        self.steps += 1
        self.clocks[worker] = head.step
        self._waiting.append(worker)
        limit = min(self.clocks) + self.staleness
        free = [waiting for waiting in self._waiting if self.clocks[waiting] <= limit]
        self._waiting = [waiting for waiting in self._waiting if self.clocks[waiting] > limit]
        self._send_parameters(free)

    def _update(self, head: Head, body: torch.Tensor) -> None:
        """Take a step along one worker's gradient."""
        parcels = self.make_parcels(head)
        message, lengths = ServerLane.split_sizes(parcels, body)
        self.flat.gradients.zero_()
        self.decoders(parcels, Message(message), 0, message.numel(), lengths, 1.0)
        for parcel in parcels:
            parcel.compressor.finish(parcel.unit.gradient, parcel.key, 1)
        self.setup.optimizer.adjust(momentum=head.momentum, weight_decay=head.weight_decay)
        self.setup.clipping.clip_final()
        self.setup.optimizer.step(head.lr)

    def _send_parameters(self, workers: list[int]) -> None:
        if not workers:
            return
        answer = self.take_free_answer()
        message = answer.room.get(FLAG_BYTES + self.flat.values.nbytes)
        message[FLAG_BYTES:] = self.flat.values.view(torch.uint8)
        self.send(answer, message, workers)
        for worker in workers:
            self.sent_at[worker] = self.steps

    def on_parameters_request(self, worker: int) -> None:
        self._send_parameters([worker])

    def figures(self) -> dict[str, Any]:
        """Return the mean and the largest staleness of gradients."""
        return {"staleness": {"mean": self.stale_sum / self.steps if self.steps else None, "max": self.stale_most}}

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": self.flat.values.clone(),
            "optimizer": self.setup.optimizer.state_dict(),
            "selector": self.setup.selector.state_dict(),
            "clocks": list(self.clocks),
            "steps": self.steps,
            "sent_at": list(self.sent_at),
            "stale": [self.stale_sum, self.stale_most],
        }

    @torch.no_grad()
    def load_state_dict(self, state: Any) -> None:
        keys = ("parameters", "optimizer", "selector", "clocks", "steps", "sent_at", "stale")
        unit_state.require_keys("an asynchronous server", state, keys)
        if getattr(state["parameters"], "shape", None) != self.flat.values.shape:
            raise ValueError("parameters in the state of an asynchronous server are not those of the model")
        if len(state["clocks"]) != self.workers or len(state["sent_at"]) != self.workers:
            raise ValueError(f"the state of an asynchronous server is not that of {self.workers} workers")
        self.setup.selector.load_state_dict(state["selector"])
        self.setup.optimizer.load_state_dict(state["optimizer"])
        self.flat.values.copy_(state["parameters"])
        self.clocks, self.steps, self.sent_at = list(state["clocks"]), state["steps"], list(state["sent_at"])
        self.stale_sum, self.stale_most = state["stale"]
