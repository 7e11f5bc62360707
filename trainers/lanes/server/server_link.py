"""Messages between a worker and a dedicated server.

A worker's message of a step is a head of HEAD_BYTES about the step, the sizes of the payloads where these depend on the
data (uint32 a unit), and the payloads. An answer is a word of flags and the mean or parameters. Questions between steps
(checkpoints, figures, the end) are pickled pairs; each has a reply, except the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from trainers.lanes.bundles import Room
from trainers.mpi import staging, stopping

if TYPE_CHECKING:
    from mpi4py import MPI

PUSH, ANSWER, CONTROL, REPLY = 1, 2, 3, 4
"""Tags: a worker's message and its answer; a question beside the steps and its reply."""

FLAG_BYTES = 4
TAKEN, STOP = 1, 2
"""Flags of an answer: the worker's message is part of it; the server has been asked to stop the run."""

STATE, LOAD, FIGURES, PARAMETERS, END = "state", "load", "figures", "parameters", "end"
"""Questions beside the steps. PARAMETERS is answered like a message."""


class Head(NamedTuple):
    """The head of a message to the server: a worker's step and its settings."""

    step: int
    epoch: int
    lr: float
    momentum: float
    weight_decay: float

    def bytes(self) -> torch.Tensor:
        """Return the encoded head: (HEAD_BYTES,) uint8."""
        return torch.from_numpy(np.array(self, dtype=np.float64).view(np.uint8))

    @classmethod
    def from_message(cls, message: torch.Tensor) -> Head:
        """Decode the head of a message."""
        step, epoch, *rest = np.frombuffer(message[:HEAD_BYTES].numpy().tobytes(), dtype=np.float64).tolist()
        return cls(int(step), int(epoch), *rest)


HEAD_BYTES = 8 * len(Head._fields)


class Link:
    """A worker's connection to the server, which is rank `server` of `world`."""

    def __init__(self, world: MPI.Comm, server: int) -> None:
        self.world, self.server = world, server
        self._room = Room()

    def push(self, message: torch.Tensor) -> tuple[bool, torch.Tensor]:
        """Send the message of a step and wait for the server's answer.

        Returns:
            Whether the message counts in the answer, and the answer, which is valid until the next answer.
        """
        pushed = self.world.Isend(staging.get_words(message), self.server, PUSH)
        answered = self._answer()
        pushed.Wait()
        return answered

    def fetch_parameters(self) -> torch.Tensor:
        """Return the server's newest parameters: (n,) float32, valid until the next answer."""
        self.world.send((PARAMETERS, None), self.server, CONTROL)
        return self._answer()[1].view(torch.float32)

    def _answer(self) -> tuple[bool, torch.Tensor]:
        answer = self._room.receive(self.world, self.server, ANSWER)
        flags = int(answer[0])
        if flags & STOP:
            stopping.request()
        return bool(flags & TAKEN), answer[FLAG_BYTES:]

    def ask(self, question: str, value: Any = None) -> Any:
        """Return the server's reply to a question between steps."""
        self.world.send((question, value), self.server, CONTROL)
        return self.world.recv(source=self.server, tag=REPLY)

    def end(self, result: dict[str, Any]) -> None:
        """Tell the server to end; all workers are done."""
        self.world.send((END, {key: result[key] for key in ("status", "reason", "steps")}), self.server, CONTROL)
