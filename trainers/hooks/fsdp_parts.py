"""The compressed reduce-scatter and the compressed mean that FSDP2 calls for a module with its own `fully_shard`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from compressors import unit_state
from compressors.memories.base import NoMemory
from compressors.random_key import splitmix64
from gradsweep.errors import UsageError
from trainers.devices.choose import create_stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.torch_transport import TorchTransport
from trainers.exchange.unit_owners import TwoPhase
from trainers.gradients.flat import Unit
from trainers.hooks.averager import Averager
from trainers.hooks.connection import use_group
from trainers.hooks.state import HookState
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.sharding import ShardLane


class Part(ABC):
    """The exchange of one module. Its number makes its random numbers others than those of other modules."""

    def __init__(self, state: HookState, name: str, number: int) -> None:
        self.state, self.name = state, name
        self._seed = splitmix64(state.method.seed ^ splitmix64(number)) >> 1
        self._step = 0
        self._averager: Averager | None = None
        self._saved: dict[str, Any] | None = None

    @abstractmethod
    def _build(self, group: dist.ProcessGroup, units: Sequence[Unit], device: torch.device) -> Averager:
        """Build the exchange in the first step."""

    def average(self, group: dist.ProcessGroup, units: Sequence[Unit], device: torch.device) -> None:
        """Exchange the gradients of all units, which are the same in every step."""
        if self._averager is None:
            self._watch = create_stopwatch(device)
            self._averager = self._build(group, units, device)
            if self._saved is not None:
                self._averager.exchange.load_state_dict(self._saved)
                self._saved = None
        self.count_seconds()
        self._step += 1
        self._averager.begin(self._step)
        for unit in units:
            self._averager.exchange.submit(unit)
        self._averager.finish()

    def count_seconds(self) -> None:
        """Add the seconds since the last call to the counts."""
        if self._averager is not None:
            self.state.counts.add_seconds(self._watch.take())

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        exchange = self._saved if self._averager is None else self._averager.exchange.state_dict()
        return {"step": self._step, "exchange": exchange}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` has returned.

        Raises:
            ValueError: it is not such a state, or steps have been taken.
        """
        unit_state.require_keys(f"{self.state.function}, {self.name}", state, ("step", "exchange"))
        if self._averager is not None:
            raise ValueError(f"{self.state.function}: a state is loaded before the first step")
        self._step, self._saved = state["step"], state["exchange"]


class ScatterLane(ShardLane):
    """The first phase of a sharded exchange alone: the owner of a unit has the mean, and others have no use for it."""

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.form_mean(self._scatter())
        yield from ()

    def decode(self) -> None:
        """Do nothing: the mean has been formed."""


def _build_scattering(setup: ExchangeSetup, transport: TorchTransport) -> Exchange:
    """Build the exchange that ends after the first phase; unit i belongs to worker i."""
    workers = transport.group.size
    second = SecondPhase(workers, again=False, memory=NoMemory())
    lane = ScatterLane(transport.group, setup.watch, setup.selector, second, range(workers))
    return TwoPhase(setup, second, lane, transport)


class CompressedScatter(Part):
    """The reduce-scatter of one module: what `FSDPModule.set_custom_reduce_scatter` takes.

    The gradient lies in the same memory in every step; the mean of a shard in new memory, as it becomes the gradient of
    the sharded parameters.
    """

    def __init__(self, state: HookState, name: str, number: int) -> None:
        super().__init__(state, name, number)
        self._gradient: torch.Tensor | None = None
        self._units: list[Unit] = []

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Allocate the gradient, which FSDP asks for first, or the mean of a shard."""
        allocated = self._gradient
        if allocated is None:
            allocated = self._gradient = torch.empty(*size, dtype=dtype, device=device)
        elif tuple(size) != tuple(allocated.shape):
            return torch.empty(*size, dtype=dtype, device=device)
        return allocated

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write the mean, or for ReduceOp.SUM the sum, of the workers' gradients of this worker's shard."""
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise UsageError(
                f"{self.state.function}: set_gradient_divide_factor with a factor of its own; valid is none"
            )
        workers, rank = dist.get_world_size(group), dist.get_rank(group)
        if not self._units:
            self._units = [
                Unit(index, f"{self.name}-{index}", shard, shard.new_empty(0))
                for index, shard in enumerate(input_tensor.view(workers, -1))
            ]
        self.average(group, self._units, input_tensor.device)
        output_tensor.copy_(self._units[rank].gradient)
        if op == dist.ReduceOp.SUM:
            output_tensor.mul_(workers)

    def _build(self, group: dist.ProcessGroup, units: Sequence[Unit], device: torch.device) -> Averager:
        connected = use_group(self.state.function, group, device)
        return Averager(self.state, connected, units, self._watch, seed=self._seed, build=_build_scattering)


class CompressedMean(Part):
    """The mean of one module's shard over nodes: what `FSDPModule.set_all_reduce_hook` takes."""

    def __init__(self, state: HookState, name: str, number: int, group: dist.ProcessGroup) -> None:
        super().__init__(state, name, number)
        self._group = group
        self._unit: Unit | None = None

    def __call__(self, reduce_output: torch.Tensor) -> None:
        """Replace a shard's gradient by its compressed mean over the nodes."""
        if self._unit is None:
            own = torch.empty_like(reduce_output)
            self._unit = Unit(0, self.name, own, own.new_empty(0))
        self._unit.gradient.copy_(reduce_output)
        self.average(self._group, [self._unit], reduce_output.device)
        reduce_output.copy_(self._unit.gradient)

    def _build(self, group: dist.ProcessGroup, units: Sequence[Unit], device: torch.device) -> Averager:
        connected = use_group(self.state.function, group, device)
        return Averager(self.state, connected, units, self._watch, seed=self._seed)
