"""Asynchronous SGD: workers push gradients to a server, which takes a step with each and sends new parameters."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from compressors import unit_state
from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.synchronous import Synchronous
from trainers.exchange.base import Traffic
from trainers.exchange.dedicated_server import Dedicated
from trainers.lanes.server.server_link import FIGURES


class Asynchronous(Synchronous):
    """Asynchronous SGD: in a step a worker sends its compressed gradient to the server and gets the newest parameters.

    The server (trainers/servers/asynchronous.py) clips gradients and updates parameters; a worker's optimizer only
    holds the momentum and weight decay that the schedule sets. At the end of an epoch every worker gets parameters that
    contain all gradients.
    """

    replicated = False

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
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
        figures: dict[str, Any] = self.exchange.link.ask(FIGURES)
        return figures

    def state_dict(self) -> dict[str, Any]:
        return {"exchange": self.exchange.state_dict()}  # the server has the optimizer's state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys("asynchronous SGD", state, ("exchange",))
        self.exchange.load_state_dict(state["exchange"])
