"""Hooks of FSDP2: a reduce-scatter of compressed gradients, and the compressed mean between nodes (HSDP).

    fully_shard(model)
    state = gradsweep.fsdp_hook(model, "qsgd", memory="residual")

FSDP2 shards every parameter over the workers. After the backward of a module with its own `fully_shard`, the hook sends
each worker the compressed part of the gradient that it owns (the first phase of exchange=sharded), and the owner forms
the mean. No second phase follows: each worker updates only its shard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from compressors import unit_state
from compressors.base import Compressor
from compressors.memories.base import Memory, NoMemory
from compressors.policy.policy import Policy
from compressors.random_key import splitmix64
from gradsweep.errors import UsageError, bad_value
from trainers.devices.choose import create_stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.torch_lanes import GroupShardLane
from trainers.exchange.torch_transport import TorchTransport
from trainers.exchange.unit_owners import TwoPhase
from trainers.gradients.flat import Unit
from trainers.hooks.averager import Averager, Counts, Progress
from trainers.hooks.connection import check_connected, use_group
from trainers.hooks.method import OVERLAPPING, TWO_PHASE, Method, build_method
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase

if TYPE_CHECKING:
    from torch.optim import Optimizer

SHARDS, NODES = "fsdp_hook", "hsdp_hook"


def fsdp_hook(
    model: nn.Module,
    compressor: str | Compressor = "none",
    *,
    memory: str | Mapping[str, Any] | Memory = "none",
    policy: Mapping[str, Any] | Policy | None = None,
    seed: int = 0,
    measure_every: int = 0,
    optimizer: Optimizer | None = None,
    **options: Any,
) -> FSDPState:
    """Compress the reduce-scatters of a model that `fully_shard` has sharded; return the hook's state.

    A unit is the part of one worker of the gradient of a module with its own `fully_shard`, as a vector. The arguments
    are those of `ddp_hook`. All workers call this.

    Raises:
        UsageError: a value is not valid, or parts do not go together; one line.
    """
    method = build_method(
        compressor,
        options,
        memory=memory,
        policy=policy,
        exchange={"name": "sharded", "second": "none"},
        exchanges=TWO_PHASE,
        granularity="bucket",
        workers=check_connected(SHARDS, None),
        seed=seed,
        measure_every=measure_every,
    )
    if method.memory.name == "ef21":
        raise bad_value("memory", "ef21", "residual: a worker does not get the mean of shards that it does not own")
    state = FSDPState(SHARDS, method, Progress(method, optimizer))
    for name, module in _find_sharded(SHARDS, model):
        scatter = CompressedScatter(state, name, len(state.parts))
        module.set_custom_reduce_scatter(scatter)
        state.parts[name] = scatter
    return state


def hsdp_hook(
    model: nn.Module,
    compressor: str | Compressor = "none",
    *,
    process_group: dist.ProcessGroup,
    memory: str | Mapping[str, Any] | Memory = "none",
    policy: Mapping[str, Any] | Policy | None = None,
    exchange: str | Mapping[str, Any] = "auto",
    seed: int = 0,
    measure_every: int = 0,
    optimizer: Optimizer | None = None,
    **options: Any,
) -> FSDPState:
    """Average the sharded gradients of several replicas, one a node, with compression; return the hook's state.

    Each replica is sharded by `fully_shard` over the workers of its node, which add gradients uncompressed. The hook
    then exchanges each shard with those workers of the other nodes that own the same one. All workers call this.

    Args:
        model: sharded over the one-dimensional mesh of a node; the replicas begin with equal parameters.
        process_group: the workers with the same shard, one of each node.

    Other arguments are those of `ddp_hook`.

    Raises:
        UsageError: a value is not valid, or parts do not go together; one line.
    """
    method = build_method(
        compressor,
        options,
        memory=memory,
        policy=policy,
        exchange=exchange,
        exchanges={**dict.fromkeys(OVERLAPPING, ("part_mib",)), **TWO_PHASE},
        granularity="bucket",
        workers=check_connected(NODES, process_group),
        seed=seed,
        measure_every=measure_every,
        overlap=False,
    )
    state = FSDPState(NODES, method, Progress(method, optimizer))
    for name, module in _find_sharded(NODES, model):
        if any(group._is_hsdp for group in module._get_fsdp_state()._fsdp_param_groups):
            raise UsageError(
                f"{NODES}: {name or 'the model'} is sharded over a mesh of two dimensions, whose replicas are averaged "
                f"uncompressed; valid is fully_shard over the mesh of a node"
            )
        mean = CompressedMean(state, name, len(state.parts), process_group)
        module.set_all_reduce_hook(mean)
        state.parts[name] = mean
    return state


def _find_sharded(function: str, model: nn.Module) -> list[tuple[str, Any]]:
    """Return the modules to which `fully_shard` was applied directly, as a dict by name.

    Raises:
        UsageError: there is none, or this torch cannot let one set what is called.
    """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        raise UsageError(f"{function}: this torch ({torch.__version__}) has no FSDP2; valid is torch 2.13") from None
    needed = "set_custom_reduce_scatter" if function == SHARDS else "set_all_reduce_hook"
    if not hasattr(FSDPModule, needed):
        raise UsageError(f"{function}: FSDP2 of this torch ({torch.__version__}) has no {needed}; valid is torch 2.13")
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    if not found:
        raise UsageError(f"{function}: {type(model).__name__} is not sharded; valid after fully_shard(model)")
    return found


class FSDPState:
    """The state of a hook on all modules of a model.

    Attributes:
        epoch: the current epoch, from 1; set it in each epoch if the policy goes by epochs.
        parts: what the hook does for each module with its own `fully_shard`, by the module's name.
    """

    def __init__(self, function: str, method: Method, progress: Progress) -> None:
        self.function, self.method, self.progress = function, method, progress
        self.counts = Counts()
        self.parts: dict[str, _Part] = {}

    @property
    def epoch(self) -> int | None:
        """The current epoch, from 1; None if it has not been set."""
        return self.progress.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.progress.epoch = epoch

    def take_counts(self) -> dict[str, Any]:
        """Return what the hook took since the last call, as arguments of `gradsweep.script.Run.step`; see DDPState."""
        for part in self.parts.values():
            part.count_seconds()
        columns = self.counts.get_columns()
        self.counts.begin()
        return columns

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this worker's state between two steps: each worker saves and loads its own."""
        return {"epoch": self.epoch, "parts": {name: part.state_dict() for name, part in self.parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` has returned on the same worker, for the same model and arguments.

        Call it before the first step. Whether the state fits the model shows in the first step.

        Raises:
            ValueError: it is not such a state, or steps have been taken.
        """
        unit_state.require_keys(self.function, state, ("epoch", "parts"))
        unit_state.require_keys(self.function, state["parts"], self.parts)
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self.progress.epoch = state["epoch"]


class _Part(ABC):
    """The exchange of one module. Its number makes its random numbers others than those of other modules."""

    def __init__(self, state: FSDPState, name: str, number: int) -> None:
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
        self._averager.begin(self._step, self.state.progress)
        for unit in units:
            self._averager.exchange.submit(unit)
        self._averager.finish(self.state.counts)

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


class ScatterLane(GroupShardLane):
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


class CompressedScatter(_Part):
    """The reduce-scatter of one module: what `FSDPModule.set_custom_reduce_scatter` takes.

    The gradient lies in the same memory in every step; the mean of a shard in new memory, as it becomes the gradient of
    the sharded parameters.
    """

    def __init__(self, state: FSDPState, name: str, number: int) -> None:
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
            raise UsageError(f"{SHARDS}: set_gradient_divide_factor with a factor of its own; valid is none")
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
        method, connected = self.state.method, use_group(SHARDS, group, device)
        return Averager(SHARDS, method, connected, units, self._watch, seed=self._seed, build=_build_scattering)


class CompressedMean(_Part):
    """The mean of one module's shard over nodes: what `FSDPModule.set_all_reduce_hook` takes."""

    def __init__(self, state: FSDPState, name: str, number: int, group: dist.ProcessGroup) -> None:
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
        method, connected = self.state.method, use_group(NODES, group, device)
        return Averager(NODES, method, connected, units, self._watch, seed=self._seed)
