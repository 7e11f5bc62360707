"""The exchange with a dedicated parameter server: an additional rank that does not train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.exchange.base import ExchangeSetup
from trainers.exchange.unit_owners import TwoPhase, build_second_memory
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server.pushing import ParametersLane, PushLane
from trainers.lanes.server.server_link import LOAD, STATE, Head, Link
from trainers.mpi.group import MpiGroup
from trainers.options import exchanges as options


class Dedicated(TwoPhase):
    """An exchange that sends every worker's payloads to the server, whose state is part of worker 0's state."""

    def __init__(self, setup: ExchangeSetup, second: SecondPhase, lane: PushLane, link: Link) -> None:
        super().__init__(setup, second, lane)
        self.lane, self.link = lane, link
        self._momentum = self._weight_decay = 0.0

    def adjust(self, *, momentum: float, weight_decay: float) -> None:
        """Set momentum and weight decay of the server's optimizer for the next step; a schedule may change them."""
        self._momentum, self._weight_decay = momentum, weight_decay

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        super().begin(step, epoch=epoch, lr=lr, measure=measure)
        self.lane.head = Head(step, epoch, lr, self._momentum, self._weight_decay)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of any exchange with two phases, and on worker 0 that of the server."""
        return {**super().state_dict(), "server": self.link.ask(STATE) if self.comm.rank == 0 else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` has returned on the same worker, for the same options and workers.

        Raises:
            ValueError: the state does not fit.
        """
        if not isinstance(state, Mapping) or "server" not in state:
            raise ValueError("the state is not that of an exchange with a dedicated server: it has no key server")
        super().load_state_dict({key: value for key, value in state.items() if key != "server"})
        if self.comm.rank == 0 and (error := self.link.ask(LOAD, state["server"])) is not None:
            raise ValueError(error)


def build_dedicated(config: options.ParameterServer, setup: ExchangeSetup, link: Link) -> Dedicated:
    """Build the exchange: a synchronous server answers with the mean gradient, an asynchronous one with parameters."""
    comm, units, selector, memory, _, watch = setup
    group = MpiGroup(comm)
    if config.asynchronous:
        second = SecondPhase(len(units), again=False, memory=build_second_memory("none", memory))
        exchange = Dedicated(setup, second, ParametersLane(group, watch, selector, second, link), link)
        exchange.may_lag = config.staleness + 1
        return exchange
    second = SecondPhase(len(units), again=config.answer == "compressed", memory=build_second_memory("none", memory))
    return Dedicated(setup, second, PushLane(group, watch, selector, second, link, backup=config.backup), link)
