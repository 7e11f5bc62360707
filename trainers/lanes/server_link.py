"""What a worker and a dedicated server say to each other.

A worker's message of a step is HEAD_BYTES of what the server has to know of the step, the sizes of the payloads where
these depend on the data (uint32 a unit), and the payloads. An answer is a word of flags and what it answers with. What
is said beside the steps (checkpoints, the end) are pickled pairs, of which every one is answered but the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from trainers.lanes.bundles import Room, count_words
from trainers.mpi import stopping
from trainers.mpi.message_sizes import ALIGNMENT

if TYPE_CHECKING:
    from mpi4py import MPI

PUSH, ANSWER, CONTROL, REPLY = 1, 2, 3, 4
"""Tags: a worker's message, its answer; a question beside the steps, and what the server says to it."""

FLAG_BYTES = 4
TAKEN, STOP = 1, 2
"""Flags of an answer: the message is part of it; the server has been asked to stop the run."""

STATE, LOAD, FIGURES, PARAMETERS, END = "state", "load", "figures", "parameters", "end"
"""Questions. PARAMETERS has an answer as a message has."""


class Head(NamedTuple):
    """What a server has to know of a worker's step."""

    step: int
    epoch: int
    lr: float
    momentum: float
    weight_decay: float

    def bytes(self) -> torch.Tensor:
        """(HEAD_BYTES,) uint8."""
        return torch.from_numpy(np.array(self, dtype=np.float64).view(np.uint8))

    @classmethod
    def from_message(cls, message: torch.Tensor) -> Head:
        """The head of a message."""
        step, epoch, *rest = np.frombuffer(message[:HEAD_BYTES].numpy().tobytes(), dtype=np.float64).tolist()
        return cls(int(step), int(epoch), *rest)


HEAD_BYTES = 8 * len(Head._fields)


class Link:
    """A worker's way to the server, which is rank `server` of `world`."""

    def __init__(self, world: MPI.Comm, server: int) -> None:
        self.world, self.server = world, server
        self._room = Room()

    def push(self, message: torch.Tensor) -> tuple[bool, torch.Tensor]:
        """Send the message of a step and wait for its answer.

        Returns whether the message is part of the answer, and the answer; that stays as it is until the next one.
        """
        from mpi4py import MPI

        pushed = self.world.Isend([message.numpy(), count_words(message.numel()), MPI.INT32_T], self.server, PUSH)
        answered = self._answer()
        pushed.Wait()
        return answered

    def fetch_parameters(self) -> torch.Tensor:
        """The newest parameters: (n,) float32, valid until the next answer."""
        self.world.send((PARAMETERS, None), self.server, CONTROL)
        return self._answer()[1].view(torch.float32)

    def _answer(self) -> tuple[bool, torch.Tensor]:
        from mpi4py import MPI

        status = MPI.Status()
        self.world.Probe(self.server, ANSWER, status)
        size = status.Get_count(MPI.INT32_T) * ALIGNMENT
        answer = self._room.get(size)
        self.world.Recv([answer.numpy(), count_words(size), MPI.INT32_T], self.server, ANSWER)
        flags = int(answer[0])
        if flags & STOP:
            stopping.request()
        return bool(flags & TAKEN), answer[FLAG_BYTES:]

    def ask(self, question: str, value: Any = None) -> Any:
        """What the server says to a question beside the steps."""
        self.world.send((question, value), self.server, CONTROL)
        return self.world.recv(source=self.server, tag=REPLY)

    def end(self, result: dict[str, Any]) -> None:
        """All workers are done: so is the server."""
        self.world.send((END, {key: result[key] for key in ("status", "reason", "steps")}), self.server, CONTROL)
