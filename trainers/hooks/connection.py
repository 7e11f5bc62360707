"""The workers of a hook, which torch.distributed has connected before."""

from __future__ import annotations

import torch
import torch.distributed as dist

from gradsweep.errors import UsageError
from trainers.exchange.torch_group import TorchGroup


def check_connected(function: str, process_group: dist.ProcessGroup | None) -> int:
    """Return the number of workers in a process group; None: the default one.

    Raises:
        UsageError: torch.distributed has not been initialised, or this process does not belong to the group.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise UsageError(f"{function}: there is no process group; valid after torch.distributed.init_process_group")
    if not (process_group is None or isinstance(process_group, dist.ProcessGroup)):
        raise UsageError(f"{function}: process_group={process_group}: valid is a process group of torch.distributed")
    size = dist.get_world_size(process_group)
    if size < 1:
        raise UsageError(f"{function}: this rank is not in process_group; valid is a group with it")
    return size


def find_backend(function: str, process_group: dist.ProcessGroup | None, device: torch.device) -> str:
    """Return the backend that connects workers whose gradients are on `device`: nccl, or gloo by main memory.

    Raises:
        UsageError: the process group has neither.
    """
    backends = str(dist.get_backend_config(process_group))  # such as cpu:gloo,cuda:nccl
    if device.type == "cuda" and "nccl" in backends:
        return "nccl"
    if "gloo" in backends or device.type == "cpu":
        return "gloo"
    raise UsageError(f"{function}: process group of {backends}; valid is one of gloo, nccl")


def open_group(function: str, process_group: dist.ProcessGroup | None, device: torch.device) -> TorchGroup:
    """Return a group of its own with the workers of `process_group`, whose collectives no others can get between.

    All workers call this at the same place among their collectives.
    """
    backend = find_backend(function, process_group, device)
    if process_group is None or dist.get_world_size(process_group) == dist.get_world_size():
        own = dist.new_group(backend=backend)
    else:
        ranks = dist.get_process_group_ranks(process_group)
        own = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
    assert own is not None
    return _wrap(own, backend, device)


def use_group(function: str, process_group: dist.ProcessGroup, device: torch.device) -> TorchGroup:
    """Return `process_group` itself, for collectives in their place among others."""
    return _wrap(process_group, find_backend(function, process_group, device), device)


def _wrap(process_group: dist.ProcessGroup, backend: str, device: torch.device) -> TorchGroup:
    messages = device if backend == "nccl" else torch.device("cpu")
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    return TorchGroup(backend, messages, rank, size, process_group)
