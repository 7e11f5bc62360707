"""The exchanges whose units have owners: `sharded` and `parameter_server`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from compressors import Compressor, memories
from compressors.base import Cooperative
from compressors.memories.base import Memory
from compressors.memories.error_feedback import LoCo
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.transport import Transport
from trainers.lanes.base import Lane
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server.backup import FURTHEST_BEHIND, BackupLane
from trainers.lanes.server.pushing import PushLane
from trainers.lanes.server.serving import ServerLane
from trainers.lanes.sharding import ShardLane, assign_owners
from trainers.lanes.two_phase import TwoPhaseLane
from trainers.mpi.group import MpiGroup
from trainers.options import exchanges as options


class TwoPhase(Exchange):
    """An exchange that sends each unit's payloads to its owner, which compresses their mean again for all workers.

    The measured compression error is that of the first phase.
    """

    def __init__(
        self, setup: ExchangeSetup, second: SecondPhase, lane: TwoPhaseLane, transport: Transport | None = None
    ) -> None:
        super().__init__(*setup, sums=False, gathers=True, transport=transport, collectives=lane.collectives)
        self.may_drop = isinstance(lane, (BackupLane, PushLane)) and lane.backup > 0
        self.may_lag = FURTHEST_BEHIND if self.may_drop else 0
        self.second = second
        self._lanes[None] = lane

    @property
    def keepers(self) -> tuple[Any, ...]:
        return *super().keepers, self.second

    def _get_lane(self, compressor: Compressor) -> Lane:
        if isinstance(compressor, Cooperative):
            raise ValueError(f"{compressor.name}: its mean takes rounds of its own, which no owner of a unit can do")
        return self._lanes[None]

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        self.second.begin(lr)
        super().begin(step, epoch=epoch, lr=lr, measure=measure)

    def empty_memories(self) -> None:
        super().empty_memories()
        self.second.memory.load_state_dict({})

    def state_dict(self) -> dict[str, Any]:
        """Return the state that every exchange has, and that of the second phase."""
        return {**super().state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` has returned on the same worker, for the same units, options and workers.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        if not isinstance(state, Mapping) or "second" not in state:
            raise ValueError("the state is not that of an exchange with two phases: it has no key second")
        self.second.check_state(state["second"])
        super().load_state_dict({key: value for key, value in state.items() if key != "second"})
        self.second.load_state_dict(state["second"])


def build_second_memory(name: str, first: Memory) -> Memory:
    """Build the memory for the second phase that the option names; with `auto`, only if the workers have a memory."""
    if name == "auto" and isinstance(first, LoCo):
        return dataclasses.replace(first)
    if name == "auto":
        name = first.name if first.name in ("none", "scaled_residual") else "residual"
    return memories.build(name)


def build_sharded(config: options.Sharded, setup: ExchangeSetup, transport: Transport | None = None) -> TwoPhase:
    """Build the exchange in which each worker owns a shard of the units.

    Args:
        transport: carries the messages; None: MPI.
    """
    comm, units, selector, memory, _, watch = setup
    transport = Transport(comm, watch) if transport is None else transport
    kept = build_second_memory(config.second_memory, memory)
    second = SecondPhase(len(units), again=config.second == "same", memory=kept)
    owners = assign_owners([unit.gradient.numel() for unit in units], comm.size)
    return TwoPhase(setup, second, ShardLane(transport.group, watch, selector, second, owners), transport)


def build_parameter_server(
    config: options.ParameterServer, setup: ExchangeSetup, transport: Transport | None = None
) -> TwoPhase:
    """Build the exchange in which rank 0 owns all units.

    Args:
        transport: carries the messages; None: MPI, which alone can have backup workers.
    """
    comm, units, selector, memory, _, watch = setup
    transport = Transport(comm, watch) if transport is None else transport
    kept = build_second_memory(config.second_memory, memory)
    second = SecondPhase(len(units), again=config.answer == "compressed", memory=kept)
    group = transport.group
    lane = ServerLane(group, watch, selector, second)
    if config.backup:
        assert isinstance(group, MpiGroup)
        lane = BackupLane(group, watch, selector, second, config.backup)
    return TwoPhase(setup, second, lane, transport)
