"""The exchange of a hook, with its step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compressors.memories.estimates import EstimateMemory
from compressors.policy.policy import Selector
from gradsweep.errors import UsageError
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, ExchangeSetup
from trainers.exchange.build import build_exchange
from trainers.exchange.torch_group import TorchGroup
from trainers.exchange.torch_lanes import StartingCollectiveQueue
from trainers.exchange.torch_transport import TorchTransport
from trainers.gradients.flat import Unit
from trainers.hooks.state import HookState
from trainers.lanes.collective_queue import CollectiveQueue


class Averager:
    """Replaces gradients by their compressed mean over the workers of a group: an exchange, and the number of its step.

    Args:
        state: of the hook.
        seed: of the random numbers; None: that of the method.
        collectives: the queue of the averager before this one, to be used on.
        build: builds the exchange; None: as the method says.
    """

    def __init__(
        self,
        state: HookState,
        group: TorchGroup,
        units: Sequence[Unit],
        watch: Stopwatch,
        *,
        seed: int | None = None,
        collectives: CollectiveQueue | None = None,
        build: Callable[[ExchangeSetup, TorchTransport], Exchange] | None = None,
    ) -> None:
        method = state.method
        self._state = state
        self._gradient_bytes = sum(4 * unit.gradient.numel() for unit in units)
        transport = TorchTransport(group, watch, key=state.function, valid='exchange="allgather"')
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
        selector = Selector(method.policy, method.compressor, described, group.size)
        memory = dataclasses.replace(method.memory)  # without state
        short = next((unit for unit in units if unit.gradient.dtype in (torch.float16, torch.bfloat16)), None)
        if short is not None and isinstance(memory, EstimateMemory):
            raise UsageError(
                f"{state.function}: memory={memory.name} with gradients of {str(short.gradient.dtype)[6:]}, in which "
                f"the mean of what is sent is rounded, and what workers take it for is not; valid is another memory, "
                f"or gradients of float32"
            )
        comm: Any = group
        setup = ExchangeSetup(comm, units, selector, memory, method.seed if seed is None else seed, watch)
        if build is not None:
            self.exchange = build(setup, transport)
        else:
            if collectives is None and getattr(method.exchange, "overlap", False):
                collectives = StartingCollectiveQueue(group, watch)
            self.exchange = build_exchange(method.exchange, *setup, transport=transport, collectives=collectives)

    def begin(self, step: int) -> None:
        """Begin step `step`, from 1."""
        state, every = self._state, self._state.method.measure_every
        self._measured = bool(every) and (step - 1) % every == 0
        self.exchange.begin(step, epoch=state.read_epoch(), lr=state.read_lr(), measure=self._measured)

    def finish(self) -> None:
        """Complete the step, after all units were submitted, and count it."""
        traffic, counts = self.exchange.finish(), self._state.counts
        counts.payload_bytes += traffic.payload_bytes
        counts.sent_bytes += traffic.sent_bytes
        counts.gradient_bytes += self._gradient_bytes
        if self._measured:
            counts.error, counts.memory_norm = traffic.compression_error, self.exchange.memory.norm()
