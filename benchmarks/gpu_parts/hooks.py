"""torch's own communication hooks, called on the gradients of a model in a process group of one."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from compressors.commands.sample_tensors import GRADIENT

Operation = Callable[[], object]


class Bucket:
    """A bucket of DistributedDataParallel, as far as hooks written in Python look at it."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], device: str) -> None:
        sizes = [math.prod(shape) for shape in shapes]
        self.flat = torch.randn(sum(sizes), device=device) * GRADIENT
        self.views = [view.view(shape) for view, shape in zip(self.flat.split(sizes), shapes, strict=True)]

    def buffer(self) -> torch.Tensor:
        return self.flat

    def gradients(self) -> list[torch.Tensor]:
        return self.views

    def parameters(self) -> list[torch.Tensor]:
        return self.views

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


@contextlib.contextmanager
def connect_alone(device: str) -> Iterator[None]:
    """Within the block, this process is a process group of one.

    That of gloo is used by all parts of a dry run: one of its threads may still hold a group that is destroyed, and the
    process would end with "Resource deadlock avoided".
    """
    backend = "nccl" if device == "cuda" and dist.is_nccl_available() else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        if not dist.is_initialized():
            dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            if backend == "nccl":
                dist.destroy_process_group()


def build(shapes: Sequence[tuple[int, ...]], device: str) -> dict[str, tuple[Operation, Operation]]:
    """Return what calls each hook once, and a copy of the gradient, by the hook's name."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    bucket, group = Bucket(shapes, device), dist.group.WORLD
    assert group is not None
    target = torch.empty_like(bucket.flat)
    state = powerSGD_hook.PowerSGDState(
        group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=2
    )
    hooks: dict[str, Callable[[Any], Any]] = {
        "allreduce": lambda one: default_hooks.allreduce_hook(group, one),
        "fp16": lambda one: default_hooks.fp16_compress_hook(group, one),
        "powersgd,rank=2": lambda one: powerSGD_hook.powerSGD_hook(state, one),
    }

    def call(hook: Callable[[Any], Any]) -> Operation:
        return lambda: hook(bucket).wait()

    def copy() -> object:
        return target.copy_(bucket.flat)

    return {name: (call(hook), copy) for name, hook in hooks.items()}
