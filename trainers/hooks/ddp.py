"""The communication hook of DistributedDataParallel.

    model.register_comm_hook(*gradsweep.ddp_hook("topk", ratio=0.01, memory="residual"))

DDP calls the hook with each bucket during backward, in the same order on all workers. The hook encodes the bucket's
units at once, and starts to send them while backward goes on. With the last bucket the exchange is completed: what is
still under way arrives, the means are decoded into the buckets, and the futures of all buckets get their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from compressors import unit_state
from compressors.base import Compressor
from compressors.memories.base import Memory
from compressors.policy.policy import Policy
from gradsweep.errors import UsageError
from trainers.devices.choose import create_stopwatch
from trainers.exchange.torch_group import TorchGroup
from trainers.hooks.averager import Averager
from trainers.hooks.buckets import Bucket, Layout, Numbering, recut_state
from trainers.hooks.connection import check_connected, open_group
from trainers.hooks.method import OVERLAPPING, TWO_PHASE, Method, build_method
from trainers.hooks.state import HookState

if TYPE_CHECKING:
    from torch.optim import Optimizer

Future = torch.futures.Future[torch.Tensor]
Hook = Callable[["DDPState", dist.GradBucket], Future]

FUNCTION = "ddp_hook"
SETTLED = 2
"""Steps after which DDP does not make other buckets any more."""


def ddp_hook(
    compressor: str | Compressor = "none",
    *,
    memory: str | Mapping[str, Any] | Memory = "none",
    policy: Mapping[str, Any] | Policy | None = None,
    exchange: str | Mapping[str, Any] = "auto",
    granularity: str = "layer",
    seed: int = 0,
    measure_every: int = 0,
    module: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    process_group: dist.ProcessGroup | None = None,
    **options: Any,
) -> tuple[DDPState, Hook]:
    """Return a state and a hook for `DistributedDataParallel.register_comm_hook`. All workers call this.

    Args:
        compressor: a name (`python -m compressors list`), with its hyper-parameters in `options`; or a compressor.
        memory: of each worker; a name, or a mapping with `name` and hyper-parameters.
        policy: the keys of `policy` in a config, as a mapping.
        exchange: auto, allreduce, allgather, mixed or sharded; or a mapping with `name` and `overlap`, `part_mib`,
            `second`, `second_memory`.
        granularity: what is compressed separately: `layer` (each parameter) or `bucket` (each bucket of DDP).
        seed: of the compressors' random numbers, the same on all workers.
        measure_every: measure the compression error and the memory in every so-manieth step; 0: never.
        module: the module that is wrapped; its parameters' names are what `policy.patterns` searches.
        optimizer: has the learning rate, in its first group, for methods that need it.
        process_group: that of the DistributedDataParallel; None: the default one.

    Raises:
        UsageError: a value is not valid, or parts do not go together; one line.
    """
    workers = check_connected(FUNCTION, process_group)
    if not (optimizer is None or isinstance(optimizer, torch.optim.Optimizer)):
        raise UsageError(f"{FUNCTION}: optimizer={optimizer}: valid is an optimizer of torch")
    if not (module is None or isinstance(module, nn.Module)):
        raise UsageError(f"{FUNCTION}: module={module}: valid is the module that is wrapped")
    method = build_method(
        compressor,
        options,
        memory=memory,
        policy=policy,
        exchange=exchange,
        exchanges={**OVERLAPPING, **TWO_PHASE},
        granularity=granularity,
        workers=workers,
        seed=seed,
        measure_every=measure_every,
    )
    if method.policy.patterns and module is None:
        raise UsageError(
            "policy.patterns: names of parameters are needed; valid is the argument module=, which has them"
        )
    return DDPState(method, optimizer, module, process_group), average_bucket


def average_bucket(state: DDPState, bucket: dist.GradBucket) -> Future:
    """Replace a bucket's gradients by their compressed mean: the hook itself."""
    return state.take_bucket(bucket)


average_bucket.__annotations__.update({"bucket": dist.GradBucket, "return": Future})  # DDP looks at them, not at text


class DDPState(HookState):
    """The state of a hook: the exchange of a DistributedDataParallel, from step to step."""

    def __init__(
        self,
        method: Method,
        optimizer: Optimizer | None,
        module: nn.Module | None,
        process_group: dist.ProcessGroup | None,
    ) -> None:
        super().__init__(FUNCTION, method, optimizer)
        self._module, self._process_group = module, process_group
        self._group: TorchGroup | None = None
        self._numbering: Numbering | None = None
        self._layout: Layout | None = None
        self._averager: Averager | None = None
        self._saved: dict[str, Any] | None = None  # loaded, for an exchange that is still to come
        self._step = self._steps_here = 0
        self._early = False  # whether the units of this step are encoded as their buckets arrive
        self._arrived: list[Bucket] = []
        self._futures: list[Future] = []

    @property
    def step(self) -> int:
        """The number of steps in which gradients were exchanged."""
        return self._step

    def take_bucket(self, bucket: dist.GradBucket) -> Future:
        """Encode the gradients of a bucket, and with the last one complete the step; return the future mean."""
        if bucket.index() == 0:
            self._step += 1
            self._steps_here += 1
            self._arrived, self._futures = [], []
        arrived = Bucket(bucket.buffer(), bucket.parameters())
        self._arrived.append(arrived)
        if bucket.index() == 0:
            self._prepare(arrived.buffer.device)
            self._early = self._is_settled(arrived)
            if self._early:
                self._begin()
        device = arrived.buffer.device
        future: Future = torch.futures.Future(devices=[] if device.type == "cpu" else [device])
        self._futures.append(future)
        if self._early:
            self._submit(bucket.index())
        if bucket.is_last():
            self._complete()
        return future

    def _prepare(self, device: torch.device) -> None:
        """Connect the workers in the first step; in later ones, count the seconds of the step before."""
        if self._group is None:
            self._group = open_group(FUNCTION, self._process_group, device)
            self._watch = create_stopwatch(device)
        self.count_seconds()

    def _is_settled(self, first: Bucket) -> bool:
        """Tell whether the buckets will be those of the step before, and can be encoded as they arrive.

        Args:
            first: the first one.
        """
        if self._layout is None or self._steps_here <= SETTLED or self.method.memory.needs_norm:
            return False
        return self._layout.buckets[0].is_same(first)

    def _begin(self) -> None:
        assert self._averager is not None
        self._averager.begin(self._step)

    def _submit(self, index: int) -> None:
        assert self._layout is not None and self._averager is not None
        if not (index < len(self._layout.buckets) and self._layout.buckets[index].is_same(self._arrived[index])):
            raise RuntimeError(f"{FUNCTION}: bucket {index} is not that of the step before; register the hook anew")
        for unit in self._layout.by_bucket[index]:
            self._averager.exchange.submit(unit)

    def _complete(self) -> None:
        """Complete the step: all buckets have arrived."""
        if not self._early:
            self._rebuild()
            self._begin()
            for index in range(len(self._arrived)):
                self._submit(index)
        assert self._averager is not None
        self._averager.finish()
        for future, bucket in zip(self._futures, self._arrived, strict=True):
            future.set_result(bucket.buffer)
        self._futures = []

    def _rebuild(self) -> None:
        """Build the exchange for the buckets that have arrived, with its predecessor's state or a loaded one."""
        if self._layout is not None and self._layout.has(self._arrived):
            return
        _check_buckets(self._arrived)
        if self._numbering is None:
            named = None if self._module is None else self._module.named_parameters()
            self._numbering = Numbering(self._arrived, named)
        joined = self.method.exchange.granularity == "bucket" or self.method.joins_layers
        before = self._averager
        saved = self._saved if before is None else self._save_exchange()
        assert self._group is not None
        layout = Layout(self._arrived, self._numbering, joined=joined)
        collectives = None if before is None else before.exchange.collectives
        averager = Averager(self, self._group, layout.units, self._watch, collectives=collectives)
        if saved is not None:
            state, exchange = saved["exchange"], averager.exchange
            if saved["members"] != layout.members:
                state = recut_state(state, saved["members"], exchange.state_dict(), layout.members)
            exchange.load_state_dict(state)
        self._layout, self._averager, self._saved = layout, averager, None

    def count_seconds(self) -> None:
        if self._group is not None:
            self.counts.add_seconds(self._watch.take())

    def state_dict(self) -> dict[str, Any]:
        saved = self._saved if self._averager is None else self._save_exchange()
        return {
            "step": self._step,
            "epoch": self.epoch,
            "granularity": self.method.exchange.granularity,
            **(saved or {"exchange": None, "members": None}),
        }

    def _save_exchange(self) -> dict[str, Any]:
        assert self._averager is not None and self._layout is not None
        return {"exchange": self._averager.exchange.state_dict(), "members": self._layout.members}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys(FUNCTION, state, ("step", "epoch", "granularity", "exchange", "members"))
        if state["granularity"] != self.method.exchange.granularity:
            theirs, ours = state["granularity"], self.method.exchange.granularity
            raise ValueError(f"{FUNCTION}: the state is that of granularity={theirs}, not of {ours}")
        if self._averager is not None:
            raise ValueError(f"{FUNCTION}: a state is loaded before the first step, but {self._step} have been taken")
        self._step, self.epoch = state["step"], state["epoch"]
        loaded = {key: state[key] for key in ("exchange", "members")}
        self._saved = None if loaded["exchange"] is None else loaded


def _check_buckets(buckets: list[Bucket]) -> None:
    """Refuse gradients that cannot be exchanged together.

    Raises:
        UsageError: they are on several devices, or sparse.
    """
    devices = sorted({str(bucket.buffer.device) for bucket in buckets})
    if len(devices) > 1:
        raise UsageError(f"{FUNCTION}: parameters are on {' and '.join(devices)}; valid is one device for each rank")
    if any(bucket.buffer.is_sparse for bucket in buckets):
        raise UsageError(f"{FUNCTION}: gradients are sparse; valid are dense gradients (sparse=False of nn.Embedding)")
