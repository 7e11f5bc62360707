"""The exchange with a parameter server that is a rank of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.exchange.base import ExchangeSetup
from trainers.exchange.unit_owners import TwoPhase, build_second_memory
from trainers.lanes.pushing import ParametersLane, PushLane
from trainers.lanes.second import SecondPhase
from trainers.lanes.server_link import LOAD, STATE, Head, Link
from trainers.options import exchanges as options


class Dedicated(TwoPhase):
    """Every worker's payloads go to the server. What the server remembers is part of worker 0's state.

    `momentum` and `weight_decay`, which a schedule may change, are what the server's optimizer is to have in a step.
    """

    momentum = weight_decay = 0.0

    def __init__(self, setup: ExchangeSetup, second: SecondPhase, lane: PushLane, link: Link) -> None:
        super().__init__(setup, second, lane)
        self.lane, self.link = lane, link

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        super().begin(step, epoch=epoch, lr=lr, measure=measure)
        self.lane.head = Head(step, epoch, lr, self.momentum, self.weight_decay)

    def state_dict(self) -> dict[str, Any]:
        """As of any exchange with two phases; that of worker 0 also holds what the server remembers."""
        return {**super().state_dict(), "server": self.link.ask(STATE) if self.comm.rank == 0 else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave for the same options and number of workers, on the same worker.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(state, Mapping) or "server" not in state:
            raise ValueError("the state is not that of an exchange with a dedicated server: it has no key server")
        super().load_state_dict({key: value for key, value in state.items() if key != "server"})
        if self.comm.rank == 0 and (error := self.link.ask(LOAD, state["server"])) is not None:
            raise ValueError(error)


def build_dedicated(config: options.ParameterServer, setup: ExchangeSetup, link: Link) -> Dedicated:
    """Synchronous: the answer is a mean gradient; asynchronous: it is the parameters."""
    comm, units, selector, memory, _, watch = setup
    if config.asynchronous:
        second = SecondPhase(len(units), again=False, memory=build_second_memory("none", memory))
        exchange = Dedicated(setup, second, ParametersLane(comm, watch, selector, second, link), link)
        exchange.may_lag = config.staleness + 1
        return exchange
    second = SecondPhase(len(units), again=config.answer == "compressed", memory=build_second_memory("none", memory))
    return Dedicated(setup, second, PushLane(comm, watch, selector, second, link, backup=config.backup), link)
