"""The exchange of a hook, with its step, its counts and its state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compressors.policy.policy import Selector
from gradsweep.errors import UsageError
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.build import build_exchange
from trainers.exchange.torch_group import TorchGroup
from trainers.exchange.torch_lanes import StartingCollectiveQueue
from trainers.exchange.torch_transport import TorchTransport
from trainers.gradients.flat import Unit
from trainers.hooks.method import Method
from trainers.lanes.collective_queue import CollectiveQueue

if TYPE_CHECKING:
    from torch.optim import Optimizer

PHASES = ("encode", "communicate", "decode")


class Counts:
    """The seconds and bytes of a hook's steps since they were last taken, by columns of steps.csv."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all steps."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.payload_bytes = self.sent_bytes = self.gradient_bytes = 0.0
        self.error: float | None = None
        self.memory_norm: float | None = None

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of phases; others than PHASES are measurements."""
        for phase in PHASES:
            self.seconds[phase] += seconds.get(phase, 0.0)

    def get_columns(self) -> dict[str, Any]:
        """Return the counts as arguments of `gradsweep.script.Run.step`: the seconds of phases, and columns.

        The compression error and the norm of the memory are in it only if they were measured.
        """
        measured = {"compression_error": self.error, "memory_norm": self.memory_norm}
        return {
            "phases": dict(self.seconds),
            "payload_bytes": self.payload_bytes,
            "sent_bytes": self.sent_bytes,
            "compression_ratio": self.gradient_bytes / self.payload_bytes if self.payload_bytes else 1.0,
            **{column: value for column, value in measured.items() if value is not None},
        }


class Progress:
    """What the user tells a hook about the training: the epoch, and by an optimizer the learning rate.

    Raises:
        UsageError: the method needs the learning rate, but there is no optimizer.
    """

    def __init__(self, method: Method, optimizer: Optimizer | None) -> None:
        self.method, self.optimizer = method, optimizer
        self.epoch: int | None = None
        if method.needs_lr and optimizer is None:
            raise UsageError(
                f"compressor={method.compressor.name}, memory={method.memory.name}: the learning rate of each step is "
                f"needed; valid is the argument optimizer=, whose first group has it"
            )

    def read_epoch(self) -> int:
        """Return the epoch, from 1.

        Raises:
            UsageError: the method needs the epoch, which was never set.
        """
        if self.epoch is None and self.method.needs_epoch:
            raise UsageError("policy: it goes by epochs; valid is to set `epoch` of the hook's state, from 1, in each")
        return 1 if self.epoch is None else self.epoch

    def read_lr(self) -> float:
        """Return the learning rate of the step."""
        return 1.0 if self.optimizer is None else float(self.optimizer.param_groups[0]["lr"])


class Averager:
    """Replaces gradients by their compressed mean over the workers of a group: an exchange, and the number of its step.

    Args:
        function: that the user has called, for error lines.
        seed: of the random numbers; None: that of the method.
        collectives: the queue of the averager before this one, to be used on.
        build: builds the exchange; None: as the method says.
    """

    def __init__(
        self,
        function: str,
        method: Method,
        group: TorchGroup,
        units: Sequence[Unit],
        watch: Stopwatch,
        *,
        seed: int | None = None,
        collectives: CollectiveQueue | None = None,
        build: Callable[[ExchangeSetup, TorchTransport], Exchange] | None = None,
    ) -> None:
        self._every = method.measure_every
        self._gradient_bytes = sum(4 * unit.gradient.numel() for unit in units)
        transport = TorchTransport(group, watch, key=function, valid='exchange="allgather"')
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
        selector = Selector(method.policy, method.compressor, described, group.size)
        memory = dataclasses.replace(method.memory)  # without state
        comm: Any = group
        setup = ExchangeSetup(comm, units, selector, memory, method.seed if seed is None else seed, watch)
        if build is not None:
            self.exchange = build(setup, transport)
        else:
            if collectives is None and getattr(method.exchange, "overlap", False):
                collectives = StartingCollectiveQueue(group, watch)
            self.exchange = build_exchange(method.exchange, *setup, transport=transport, collectives=collectives)

    def begin(self, step: int, progress: Progress) -> None:
        """Begin step `step`, from 1."""
        self._measured = bool(self._every) and (step - 1) % self._every == 0
        self.exchange.begin(step, epoch=progress.read_epoch(), lr=progress.read_lr(), measure=self._measured)

    def finish(self, counts: Counts) -> None:
        """Complete the step, after all units were submitted, and count it."""
        traffic = self.exchange.finish()
        counts.payload_bytes += traffic.payload_bytes
        counts.sent_bytes += traffic.sent_bytes
        counts.gradient_bytes += self._gradient_bytes
        if self._measured:
            counts.error, counts.memory_norm = traffic.compression_error, self.exchange.memory.norm()
