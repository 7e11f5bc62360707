"""The interface of an algorithm: one step from the gradients of all workers to new parameters."""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, Traffic
from trainers.gradients.clipping import Clipping
from trainers.gradients.flat import Flat, Unit
from trainers.optimizers.base import Optimizer

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclasses.dataclass(frozen=True)
class AlgorithmSetup:
    """What an algorithm is made of."""

    comm: MPI.Comm
    flat: Flat
    units: Sequence[Unit]
    exchange: Exchange
    optimizer: Optimizer
    clipping: Clipping
    watch: Stopwatch


class Algorithm(ABC):
    """A step: `begin`, then backward fills the flat gradient, then `finish`, after which the parameters are new.

    `on_last_backward` is called before the last backward of a step, or not at all.
    """

    replicated = True
    """The parameters are the same on all workers after every step."""

    def __init__(self, setup: AlgorithmSetup) -> None:
        self.setup = setup

    @abstractmethod
    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        """Start step `step` (from 1) of `epoch`; with `measure`, the compression error is computed on the way."""

    def on_last_backward(self) -> None:
        """The backward that comes next is the step's last: what it completes may leave while it goes on."""
        return None

    @abstractmethod
    def finish(self) -> Traffic:
        """The gradient is complete: communicate and update the parameters."""

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        """While this lasts, the parameters are those to be judged, the same on all workers; then they are as before.

        Every worker enters it at the same time, between two steps. Where a server has the parameters, the worker has
        got the newest by it, and goes on with these.
        """
        return contextlib.nullcontext()

    def measure_withheld(self) -> float:
        """l2 norm of what this worker has not told the others yet: memory_norm."""
        return self.setup.exchange.memory.norm()

    def figures(self) -> dict[str, Any]:
        """What result.json says of it beside what it says of every run; asked of worker 0 at the end."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What this worker remembers from step to step, exchange and optimizer included; between two steps."""
        return {"exchange": self.setup.exchange.state_dict(), "optimizer": self.setup.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is the state of something else.
        """
        self.setup.exchange.load_state_dict(state["exchange"])
        self.setup.optimizer.load_state_dict(state["optimizer"])
