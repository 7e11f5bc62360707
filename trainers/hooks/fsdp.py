"""Hooks of FSDP2: a reduce-scatter of compressed gradients, and the compressed mean between nodes (HSDP).

    fully_shard(model)
    state = gradsweep.fsdp_hook(model, "qsgd", memory="residual")

FSDP2 shards every parameter over the workers. After the backward of a module with its own `fully_shard`, the hook sends
each worker the compressed part of the gradient that it owns (the first phase of exchange=sharded), and the owner forms
the mean. No second phase follows: each worker updates only its shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from compressors import unit_state
from compressors.base import Compressor
from compressors.memories.base import Memory
from compressors.memories.estimates import EstimateMemory
from compressors.policy.policy import Policy
from gradsweep.errors import UsageError, bad_value
from trainers.hooks.connection import check_connected
from trainers.hooks.fsdp_parts import CompressedMean, CompressedScatter, Part
from trainers.hooks.method import OVERLAPPING, TWO_PHASE, Method, build_method
from trainers.hooks.state import HookState

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
    if isinstance(method.memory, EstimateMemory):
        raise bad_value(
            "memory", method.memory.name, "residual: a worker does not get the mean of shards that it does not own"
        )
    state = FSDPState(SHARDS, method, optimizer)
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
    state = FSDPState(NODES, method, optimizer)
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


class FSDPState(HookState):
    """The state of a hook on all modules of a model.

    Attributes:
        parts: what the hook does for each module with its own `fully_shard`, by the module's name.
    """

    def __init__(self, function: str, method: Method, optimizer: Optimizer | None) -> None:
        super().__init__(function, method, optimizer)
        self.parts: dict[str, Part] = {}

    def count_seconds(self) -> None:
        for part in self.parts.values():
            part.count_seconds()

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "parts": {name: part.state_dict() for name, part in self.parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys(self.function, state, ("epoch", "parts"))
        unit_state.require_keys(self.function, state["parts"], self.parts)
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self.epoch = state["epoch"]
