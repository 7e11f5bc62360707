"""Steps to measure: the computation without compression, and each method's exchange of the same gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from compressors.policy.policy import Selector
from gradsweep.errors import UsageError
from gradsweep.targets import describe_error
from trainers.advise.methods import Method
from trainers.advise.mirror import Mirror
from trainers.advise.request import BATCH, SHAPE, Request
from trainers.advise.samples import Samples
from trainers.config.run_config import RunConfig
from trainers.devices import choose
from trainers.exchange.build import build_exchange
from trainers.gradients.units import cut_units
from trainers.optimizers.update import hide_package
from trainers.replica.replica import Replica
from trainers.training.assembly import build_algorithm
from trainers.training.memory_cost import TensorSearch

_RATE = 1e-6
"""The learning rate of measured steps: the parameters stay about as they are."""
_MOVE = 1e-3
"""Part of a gradient by which the parameters move to and fro for methods that want to know how far they move."""


class Times(NamedTuple):
    """The seconds of a step by part; `total` has all, and the time between the parts."""

    total: float
    forward: float
    backward: float
    update: float
    encode: float
    communicate: float
    decode: float


class Computation:
    """A worker that computes gradients of the model and updates it, without compression."""

    def __init__(self, config: RunConfig, samples: Samples, device: torch.device) -> None:
        self._samples = samples
        comm: Any = Mirror(config.workers)
        self.watch = choose.create_stopwatch(device)
        self.replica = Replica(config, samples.shape, samples.classes, comm, device, samples.task)
        self.gradients = []
        for batch in samples.batches:
            self.replica.compute_gradient(batch, self.watch)
            self.gradients.append(self.replica.flat.gradients.clone())
        self._algorithm = build_algorithm(config, comm, self.replica, self.watch)
        self._step = 0
        self.first = self.take_step()

    def take_step(self) -> Times:
        """Compute a gradient and update the parameters by it; return the times."""
        self._step += 1
        batch = self._samples.batches[self._step % len(self._samples.batches)]
        self.watch.take()
        self._algorithm.begin(self._step, 1, _RATE, False)
        self.replica.compute_gradient(batch, self.watch, self._algorithm.on_last_backward)
        if self.replica.check_usable(self.watch):
            self._algorithm.finish()
        return take_times(self.watch)


class explain_errors:
    """Turn an error of the model in the block into one line: samples that it does not take, or too little memory."""

    def __init__(self, request: Request, config: RunConfig) -> None:
        self._shape, self._batch = request.shape, config.batch.size

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, UsageError) or not isinstance(error, Exception):
            return
        if is_out_of_memory(error):
            line = f"{BATCH} {self._batch}: not enough memory for a step; valid is a smaller batch or model"
        elif self._shape is not None:
            shown = ",".join(map(str, self._shape))
            line = f"{SHAPE} {shown}: the model or its loss raises {describe_error(error)}; valid is a shape it takes"
        else:
            line = f"model: it raises {describe_error(error)}; valid is a model that takes samples of the data set"
        raise UsageError(line) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory is short; torch has no class of its own for the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "memory" in str(error) and "alloc" in str(error)


def take_times(watch: Any) -> Times:
    """Return the times of the stopwatch's step."""
    total = watch.measure_step()
    return Times(total, *(watch.seconds.get(part, 0.0) for part in Times._fields[1:]))


@dataclasses.dataclass
class Counts:
    """The counts of a method's steps: bytes, and calls by kind, as result.json has them."""

    steps: int = 0
    payload_bytes: float = 0.0
    sent_bytes: float = 0.0

    def compute_means(self, collectives: Any) -> dict[str, Any]:
        """Return the figures per step."""
        steps = max(self.steps, 1)
        calls = {kind: count / steps for kind, count in sorted(collectives.calls.items()) if count}
        early = {kind: count / steps for kind, count in sorted(collectives.early.items()) if count}
        sizes = {"payload_bytes": self.payload_bytes / steps, "sent_bytes": self.sent_bytes / steps}
        return {**sizes, "collectives_per_step": calls, "early_collectives_per_step": early}


class MethodBench:
    """The exchange of a method, for so many workers, on the gradients of a computation."""

    def __init__(self, method: Method, workers: int, computation: Computation) -> None:
        config = dataclasses.replace(method.config, workers=workers)
        self._computation, flat = computation, computation.replica.flat
        self.units = cut_units(config, flat)
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in self.units]
        selector = Selector(config.policy, config.compressor, described, workers)
        with hide_package("scipy"):
            selector.warm_up(flat.gradients.device)
        memory, comm = dataclasses.replace(config.memory), Mirror(workers)  # a memory without state
        built = config.exchange, comm, self.units, selector, memory, config.seed, computation.watch
        self.exchange = build_exchange(*built)  # type: ignore[arg-type]
        self._moves = config.compressor.needs_movement
        self.counts = Counts()
        self.first = self.take_step()

    def take_step(self) -> Times:
        """Encode and decode a gradient of the computation; return the times."""
        computation, counts = self._computation, self.counts
        flat, gradients, watch = computation.replica.flat, computation.gradients, computation.watch
        counts.steps += 1
        turn = counts.steps % len(gradients)
        flat.gradients.copy_(gradients[turn])
        if self._moves:
            flat.values.add_(gradients[0], alpha=_MOVE if turn else -_MOVE)
        watch.take()
        self.exchange.begin(counts.steps, lr=_MOVE)
        self.exchange.collectives.mark_backward(True)  # as with overlap, to count the calls that would be early
        for unit in reversed(self.units):
            self.exchange.submit(unit)
        traffic = self.exchange.finish()
        counts.payload_bytes += traffic.payload_bytes
        counts.sent_bytes += traffic.sent_bytes
        return take_times(watch)

    def measure_bytes(self) -> dict[str, int]:
        """Return the bytes of the tensors that last from step to step, and those of messages."""
        search, replica = TensorSearch(), self._computation.replica
        search.count_bytes((replica.flat.values, replica.flat.gradients, *self._computation.gradients))
        kept = search.count_bytes(self.exchange.keepers)
        return {"kept_bytes": kept, "message_bytes": search.count_bytes(vars(self.exchange).values())}


def list_times(times: Sequence[Times]) -> dict[str, list[float]]:
    """Return the times of the exchange by part; encoding has all that is not decoding or communication."""
    encode = [one.total - one.communicate - one.decode for one in times]
    return {"encode": encode, "decode": [one.decode for one in times]}
