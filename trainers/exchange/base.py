"""The interface of an exchange: from the workers' gradients to their compressed mean on every worker.

One step: `begin`; `submit` for each unit in the order in which backward completes them; `finish`, after which every
unit's gradient is the mean of the workers' decoded payloads. `submit` adds what the memory has held back, and encodes
directly into the outgoing message of a lane (trainers/lanes). With `overlap`, parts of a message are sent during
backward, else in `finish`. The numbers are the same to the bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compressors import Compressor, Key, flags, unit_state
from compressors.base import Cooperative
from compressors.kernels import norms
from compressors.memories.base import Memory
from compressors.policy.policy import Selector
from trainers.devices.stopwatch import MEASURE, Stopwatch
from trainers.exchange.transport import Transport
from trainers.gradients.flat import Unit
from trainers.lanes.base import Lane, MessageLane
from trainers.lanes.collective_queue import CollectiveQueue, ThreadCollectiveQueue
from trainers.lanes.gathering import GatherLane
from trainers.lanes.parcel import Parcel
from trainers.mpi.message_sizes import align, allreduce_bytes

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The bytes that this worker sent in one step, and its compression error.

    `payload_bytes` is the size of its message, with everything that the others need to decode it.
    `sent_bytes` is the number of bytes that it sent, as the collective's algorithm sends them (trainers/lanes).
    `compression_error` is ||x - Q(x)|| / ||x|| over all units; None if it was not measured, or if the server dropped
    the worker's message.
    """

    payload_bytes: float
    sent_bytes: float
    compression_error: float | None


class Exchange:
    """An exchange: replaces the gradient of every unit by the mean gradient; `sums` and `gathers` choose the lanes.

    Args:
        units: of the model, in the order of its parameters.
        selector: chooses the compressor of each unit.
        sums: add payloads by allreduces if MPI can add them, and execute the rounds of cooperative methods.
        gathers: send the other payloads, or without `sums` all payloads, to every worker.
        overlap: send submitted units during backward.
        part_mib: size in MiB of the parts in which a message is sent; None: it depends on the number of workers.
        transport: carries the messages, and what the workers agree on; None: MPI.
        collectives: the queue that lanes post to; by default one of `transport`.

    Raises:
        UsageError: `overlap` with an MPI library that does not support it.
    """

    may_drop = False
    """Whether a message may be dropped, so that all of it stays in the memory."""

    may_lag = 0
    """Steps that a worker may be behind the others, at most."""

    def __init__(
        self,
        comm: MPI.Comm,
        units: Sequence[Unit],
        selector: Selector,
        memory: Memory,
        seed: int,
        watch: Stopwatch,
        *,
        sums: bool,
        gathers: bool,
        overlap: bool = False,
        part_mib: float | None = None,
        transport: Transport | None = None,
        collectives: CollectiveQueue | None = None,
    ) -> None:
        self.comm, self.units, self.selector, self.memory = comm, units, selector, memory
        self.seed, self.watch, self.sums, self.gathers = seed, watch, sums, gathers
        self.transport = Transport(comm, watch) if transport is None else transport
        self.collectives = self.transport.build_queue(overlap) if collectives is None else collectives
        self._part_bytes = self.transport.choose_part_bytes(part_mib, overlap)
        self._lanes: dict[Any, Lane] = {}
        self._unposted: dict[Lane, int] = {}  # bounds, in bytes, of units added since the last part
        self._before: dict[int, torch.Tensor] = {}  # parameters of the last step, for compressors that need movement

    @property
    def keepers(self) -> tuple[Any, ...]:
        """The objects whose tensors last from step to step and are in `state_dict`."""
        return self.memory, self.selector, self._before

    @property
    def takes_early(self) -> bool:
        """Whether units can be submitted during backward, as soon as they are complete."""
        return self.collectives.in_background and not self.memory.needs_norm

    def measure_withheld(self) -> float:
        """Return the l2 norm of everything that the memory of this worker holds back; NaN: it has no memory."""
        return self.memory.norm()

    def mean(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> Traffic:
        """Replace every unit's gradient by the mean over the workers of its compressed form; return the traffic."""
        self.begin(step, epoch=epoch, lr=lr, measure=measure)
        for unit in reversed(self.units):
            self.submit(unit)
        return self.finish()

    def begin(self, step: int, *, epoch: int = 1, lr: float = 1.0, measure: bool = False) -> None:
        """Start step `step` (from 1); with `measure`, compute the compression error too."""
        self._step, self._measure = step, measure
        self._error = self._norm = 0.0
        self._has_sent = False
        self._unmoved: float | None = lr  # the step's rate, until movement has been noted
        self._waiting: list[Parcel] = []
        self._parcels: list[Parcel] = []
        self._extra_bytes = self._extra_sent = 0.0
        self.collectives.mark_backward(False)
        with self.watch("encode"):
            if self.selector.is_due:
                self._choose_options()
            if self.selector.begin(step, epoch, lr):
                self._reserve()
            self.memory.begin(lr, self.comm.size, self._compute_norm)
        self._unposted.clear()
        for lane in self._lanes.values():
            lane.begin()

    def _choose_options(self) -> None:
        """Add up what the selector measures on all workers, and let it choose the compressors' options by that."""
        measured = self.selector.measure(Key(self.seed, self.comm.rank, self._step, 0))
        self.collectives.count("agreement")
        with self.watch("communicate"):
            totals = self.transport.add_up(measured, self.collectives)
        self._extra_bytes += totals.nbytes
        self._extra_sent += allreduce_bytes(totals.numel(), totals.itemsize, self.comm.size)
        self.selector.choose(totals)

    def _get_lane(self, compressor: Compressor) -> Lane:
        if self.sums and isinstance(compressor, Cooperative):
            key: Any = repr(compressor)
        else:
            key = compressor.sum_dtype if self.sums else None
        if key is None and not self.gathers:
            raise ValueError(f"{compressor.name}: the network cannot add its payloads, and nothing is gathered")
        if key not in self._lanes:
            if key is None:
                self._lanes[key] = GatherLane(self.transport.group, self.watch, self.collectives)
            elif isinstance(compressor, Cooperative):
                self._lanes[key] = self.transport.build_rounds_lane(self.collectives)
            else:
                self._lanes[key] = self.transport.build_sum_lane(key, self.collectives)
            self._lanes[key].begin()
        return self._lanes[key]

    def _reserve(self) -> None:
        """Allocate the lanes' memory for the largest messages of the selected compressors."""
        bounds: dict[Lane, int] = {}
        for unit, compressor in zip(self.units, self.selector.selected, strict=True):
            lane = self._get_lane(compressor)
            if isinstance(lane, MessageLane):
                bounds[lane] = bounds.get(lane, 0) + align(compressor.payload_bound(unit.gradient.shape))
        for lane, bound in bounds.items():
            assert isinstance(lane, MessageLane)
            lane.reserve(bound)

    def _note_movement(self) -> None:
        """Tell compressors once a step how far the parameters have moved; a skipped step moves them by 0."""
        if self._unmoved is None:
            return
        lr, self._unmoved = self._unmoved, None
        for unit, compressor in zip(self.units, self.selector.selected, strict=True):
            if not compressor.needs_movement:
                continue
            before = self._before.get(unit.index)
            if before is None:
                self._before[unit.index] = unit.values.clone()
            else:
                compressor.observe_movement(unit.index, norms.squares(unit.values - before), lr)
                before.copy_(unit.values)

    def _compute_norm(self) -> float:
        """Return the l2 norm of this worker's whole gradient."""
        return math.sqrt(sum(norms.squares(unit.gradient) for unit in self.units))

    def submit(self, unit: Unit) -> None:
        """Encode the unit's gradient. Every worker submits in the same order."""
        compressor = self.selector.selected[unit.index]
        key = Key(self.seed, self.comm.rank, self._step, unit.index)
        with self.watch("encode"):
            self._note_movement()
            self.selector.observe_own(unit.index, unit.gradient)
            exact = compressor.is_exact(unit.gradient.shape, key) and not self.may_drop
            x = self.memory.compensate(unit.index, unit.gradient, exact)
            parcel = Parcel(unit, compressor, key, x)
            self._parcels.append(parcel)
            if len(self._parcels) == len(self.units):
                self.collectives.mark_backward(False)  # it has completed the last unit
            if compressor.needs_agreement(key):
                self._waiting.append(parcel)
            else:
                self._encode(parcel)

    def _encode(self, parcel: Parcel) -> None:
        lane = self._get_lane(parcel.compressor)
        payload = lane.add(parcel)
        if payload is None:
            return
        self._record_rest(parcel, payload)
        self._unposted[lane] = self._unposted.get(lane, 0) + parcel.compressor.payload_bound(parcel.x.shape)
        if self._unposted[lane] >= self._part_bytes:
            self._unposted[lane] = 0
            with self.watch("communicate"):
                lane.post()

    def _record_rest(self, parcel: Parcel, payload: torch.Tensor) -> None:
        """Store in the memory the part of the parcel that `payload` does not carry, and measure it if requested."""
        self._has_sent = True
        if self._measure:
            with self.watch(MEASURE):
                self._norm += float(parcel.x.double().square().sum())
                rest = parcel.x.double()
                with flags.unread():
                    parcel.compressor.decompress_add(payload, rest, parcel.key, -1.0)
                self._error += float(rest.square().sum())
        with flags.unread():
            self.memory.update(parcel.key, parcel.x, payload, parcel.compressor)

    def _agree(self) -> None:
        """Agree on the maxima over all workers of the statistics that some compressors need, and encode their units."""
        with self.watch("encode"):
            statistics = [p.compressor.statistics(p.x, p.key) for p in self._waiting]
            ours = torch.cat(statistics)
        self.collectives.count("agreement")
        with self.watch("communicate"):
            largest = self.transport.maximise(ours, self.collectives)
        self._extra_bytes += 4 * largest.numel()
        self._extra_sent += allreduce_bytes(largest.numel(), 4, self.comm.size)
        agreed = largest.split([statistic.numel() for statistic in statistics])
        with self.watch("encode"):
            for parcel, maximum in zip(self._waiting, agreed, strict=True):
                parcel.compressor.agree(parcel.key, maximum)
                self._encode(parcel)

    def post(self) -> None:
        """Post everything that was submitted; `finish` may be called later, with `overlap` after it has travelled."""
        if self._waiting:
            self._agree()
            self._waiting = []
        with self.watch("communicate"):
            for lane in self._list_used_lanes():
                lane.post()

    def _list_used_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.is_used]

    def finish(self) -> Traffic:
        """Complete the step: communicate, and decode the mean into every unit's gradient; return the traffic."""
        self.post()
        lanes = self._list_used_lanes()
        for lane in lanes:
            for parcel, payload in lane.communicate():
                with self.watch("encode"):
                    self._record_rest(parcel, payload)
        with flags.read_together():
            for lane in lanes:
                lane.decode()
        with self.watch("decode"):
            for parcel in self._parcels:
                parcel.compressor.finish(parcel.unit.gradient, parcel.key, self.comm.size)
                self.memory.finish(parcel.unit.index, parcel.unit.gradient)
                self.selector.observe(parcel.unit.index, parcel.unit.gradient)
        return Traffic(
            sum(lane.payload_bytes for lane in lanes) + self._extra_bytes,
            sum(lane.sent_bytes for lane in lanes) + self._extra_sent,
            self._compute_error(),
        )

    def calls(self, steps: int) -> dict[str, dict[str, float]]:
        """Return result.json's figures on calls per step, by kind (`CollectiveQueue.calls`).

        Args:
            steps: all steps since the beginning; without any the result is empty.
        """
        if not steps:
            return {}
        counts = {"collectives_per_step": self.collectives.calls}
        if isinstance(self.collectives, ThreadCollectiveQueue):
            counts["early_collectives_per_step"] = self.collectives.early
        return {
            name: {kind: count / steps for kind, count in sorted(calls.items()) if count}
            for name, calls in counts.items()
        }

    def _compute_error(self) -> float | None:
        """Return ||x - Q(x)|| / ||x|| of the step; None if it was not measured."""
        if not (self._measure and self._has_sent):
            return None
        return (self._error / self._norm) ** 0.5 if self._norm else 0.0

    def close(self) -> None:
        """End threads and connections other than MPI's after the last step. All workers call this."""
        self.collectives.close()
        self.transport.close()

    def empty_memories(self) -> None:
        """Drop everything that memories hold back."""
        self.memory.load_state_dict({})

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this worker's state; call it between two steps.

        Another exchange that loads it continues as this one would, with the same payloads to the bit. Parameters, the
        optimizer's state and the number of the step are not part of it.
        """
        return {
            "memory": repr(self.memory),
            "kept": self.memory.state_dict(),
            "selector": self.selector.state_dict(),
            "before": {str(unit): values.clone() for unit, values in self._before.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` has returned for the same units, policy, compressor and memory.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        unit_state.require_keys("an exchange", state, ("memory", "kept", "selector", "before"))
        if state["memory"] != repr(self.memory):
            raise ValueError(f"the state is that of {state['memory']}, but the memory is {self.memory!r}")
        self.selector.check_state(state["selector"])
        dataclasses.replace(self.memory).load_state_dict(state["kept"])
        before = self._copy_before(state["before"])
        self.memory.load_state_dict(state["kept"])
        self.selector.load_state_dict(state["selector"])
        self._before = before

    def _copy_before(self, before: Any) -> dict[int, torch.Tensor]:
        """Check the parameters in a state, and return a copy of them by unit."""
        shapes = {str(unit.index): unit.values.shape for unit in self.units}
        if not isinstance(before, Mapping) or not all(
            unit in shapes and isinstance(values, torch.Tensor) and values.shape == shapes[unit]
            for unit, values in before.items()
        ):
            raise ValueError("before in the state of an exchange holds something else than parameters of the units")
        return {int(unit): values.clone() for unit, values in before.items()}


class ExchangeSetup(NamedTuple):
    """The parts from which every exchange is built, in the order of `Exchange`'s arguments."""

    comm: MPI.Comm
    units: Sequence[Unit]
    selector: Selector
    memory: Memory
    seed: int
    watch: Stopwatch
