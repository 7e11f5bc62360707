"""Asynchronous SGD: workers push gradients to a server, which takes a step with each, and work on with what it has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.synchronous import Synchronous
from trainers.exchange.base import Traffic
from trainers.exchange.dedicated_server import Dedicated
from trainers.lanes.server_link import FIGURES


class Asynchronous(Synchronous):
    """A worker's step: its own gradient, compressed, to the server, and the server's newest parameters from it.

    The server (trainers/servers/asynchronous.py) clips and updates; a worker's optimizer only knows what the schedule
    wants of it. At the end of an epoch every worker gets the parameters that all gradients have gone into.
    """

    replicated = False

    def __init__(self, setup: AlgorithmSetup) -> None:
        super().__init__(setup)
        assert isinstance(setup.exchange, Dedicated)
        self.exchange = setup.exchange

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        optimizer = self.setup.optimizer
        self.exchange.adjust(momentum=optimizer.momentum, weight_decay=optimizer.weight_decay)
        super().begin(step, epoch, lr, measure)

    def finish(self) -> Traffic:
        with self.setup.watch("encode"):
            self.setup.clipping.clip_local()
        self._arrivals.flush()
        return self.exchange.finish()

    @torch.no_grad()
    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        self.setup.flat.values.copy_(self.exchange.link.fetch_parameters())
        return contextlib.nullcontext()

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = self.exchange.link.ask(FIGURES)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"exchange": self.exchange.state_dict()}  # the optimizer's is the server's

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is the state of something else.
        """
        if not isinstance(state, Mapping) or set(state) != {"exchange"}:
            raise ValueError("the state of asynchronous SGD has the key exchange only")
        self.exchange.load_state_dict(state["exchange"])
