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
    """The parts from which every algorithm is built."""

    comm: MPI.Comm
    flat: Flat
    units: Sequence[Unit]
    exchange: Exchange
    optimizer: Optimizer
    clipping: Clipping
    watch: Stopwatch


class Algorithm(ABC):
    """An algorithm's step: `begin`, then backward fills the flat gradient, then `finish`, which updates the parameters.

    `on_last_backward` is called before the last backward of a step, or not at all.
    """

    replicated = True
    """Whether all workers have the same parameters after every step."""

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        self.config, self.setup = config, setup

    @abstractmethod
    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        """Start step `step` (from 1) in `epoch`; with `measure`, compute its compression error, too."""

    def on_last_backward(self) -> None:
        """Prepare for the step's last backward, during which completed units may be sent."""
        return None

    @abstractmethod
    def finish(self) -> Traffic:
        """Communicate the complete gradient and update the parameters; return the traffic."""

    def close(self) -> None:
        """Remove what refers to this object from the model, which other algorithms may share."""
        return None

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        """Within the block, give the model the parameters for evaluation, the same on all workers.

        All workers enter the block together, between two steps. After the block each worker has its own parameters
        again. With an asynchronous server, each gets the server's newest parameters and keeps them.
        """
        return contextlib.nullcontext()

    def measure_withheld(self) -> float:
        """Return the l2 norm of everything that this worker's memory holds back (memory_norm in steps.csv).

        NaN: the worker has no memory.
        """
        return self.setup.exchange.measure_withheld()

    def figures(self) -> dict[str, Any]:
        """Return the algorithm's own figures for result.json; called on worker 0 at the end."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return this worker's state between two steps, including the states of exchange and optimizer."""
        return {"exchange": self.setup.exchange.state_dict(), "optimizer": self.setup.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: it is not the state of such an algorithm.
        """
        self.setup.exchange.load_state_dict(state["exchange"])
        self.setup.optimizer.load_state_dict(state["optimizer"])
