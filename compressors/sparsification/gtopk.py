"""Global top-k: workers agree on k elements by merging in pairs, so that messages do not grow with the workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import ClassVar

from compressors.base import Cooperative, CorruptPayload, Law, Reduction, Sum, Swap
from compressors.kernels import backend, buffers
from compressors.lazy import np, torch
from compressors.random_key import Key
from compressors.sparsification import counts, positions
from compressors.sparsification.topk import TopK
from gradsweep.options.parameters import choice


@dataclasses.dataclass
class _Unit:
    """A worker's state of one unit between the rounds. Positions are ascending."""

    n: int
    key: Key
    start: torch.Tensor
    """Positions of this worker's own k largest elements."""
    mine: torch.Tensor
    """Positions that this worker has contributed to the sums, or whose rounding it accounts for."""
    share: torch.Tensor
    """This worker's part of the sums at the positions `mine`."""
    kept: torch.Tensor
    values: torch.Tensor
    """The k largest sums so far (`values`), and their positions (`kept`)."""
    sent: torch.Tensor
    """The payload of these sums, once they have been rounded for it."""
    guest: torch.Tensor
    theirs: torch.Tensor
    """`start` and `mine` of the worker that this one stands for; empty where there is none."""


@dataclasses.dataclass(frozen=True)
class GTopK(Cooperative):
    """gTop-k S-SGD (Shi et al., "A distributed synchronous SGD algorithm with global top-k sparsification for
    low bandwidth networks", ICDCS 2019).

    Every worker starts with its k largest elements. In round j it swaps what it has with the worker whose
    number differs in bit j; both add the two and keep the k largest of the sums, by the rules of `topk`. A sum
    of two numbers does not depend on their order, so both keep the same, and in the end all have the same k
    elements, after log2(workers) rounds of k elements each. Where the number of workers is no power of two,
    those from the largest power p on give theirs to worker - p first, and get the result in the end.

    The mean is those sums divided by the number of workers. What a worker has contributed to it are its
    elements that were in every merge on the way; the others stay in its memory. (The paper's Algorithm 4 puts
    back what is not among the last k. An element that lost in an early merge and whose position came back
    through other workers would then be neither in the sum nor in a memory; here it is in the memory.)

    `values` is how sums travel: `fp32`, or rounded to scaled half floats, `fp16`. Both of a pair go on with what the
    roundings have left, so that all still keep the same; of those who hold a sum, the one with the lowest number counts
    its rounding as its own contribution. So with fp16 too contributions add up to the sums, and the roundings of
    all rounds, the last among them, stay in memories.
    (`momentum_masking` of memory=dgc clears that one's momentum there.)

    Payload: that of `topk` with these values. What a worker has contributed, which does not travel, has float32
    values in either case: in its header `extra` is 0, which it is in none with fp16 values. A message is the
    payloads of all units, one after the other; to a worker from p on, each is followed by as many bits as the
    unit's payload of that worker had elements, filled up to whole bytes: whether the element is in the result.

    A NaN is larger than Inf and Inf larger than all numbers in every merge, so up to k of them arrive; one that
    does not is still in the memory, where there is one. float64 is rounded to float32 first.
    """

    name: ClassVar[str] = "gtopk"
    aliases: ClassVar[tuple[str, ...]] = ("global_topk",)
    paper: ClassVar[str] = "Shi et al., ICDCS 2019"
    sparse: ClassVar[bool] = True

    values: str = choice("fp32", "fp32", "fp16")
    ratio: float = counts.ratio(0.001)
    count: str = counts.rule("ceil")
    indices: str = choice("auto", *positions.OPTIONS)

    @property
    def _local(self) -> TopK:
        """The top-k compressor that encodes the worker's own selection."""
        return TopK(values=self.values, indices=self.indices, ratio=self.ratio, count=self.count)

    @property
    def _exact(self) -> TopK:
        """The top-k compressor, with float32 values, that encodes a worker's own contribution."""
        return dataclasses.replace(self._local, values="fp32")

    def law(self, shape: Sequence[int]) -> Law:
        return self._local.law(shape)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return self._local.payload_bound(shape)

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return self._local.payload_size(shape)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        return self._local.compress(x, key, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        is_exact = out.numel() > 0 and len(payload) >= positions.HEADER and int(payload[positions.HEADER - 1]) == 0
        (self._exact if is_exact else self._local).decompress_add(payload, out, key, weight)

    def kernel_modules(self) -> tuple[str, ...]:
        return self._local.kernel_modules()

    def rounds(
        self, batch: Sequence[tuple[torch.Tensor, Key]], worker: int, workers: int
    ) -> Generator[Sum | Swap, torch.Tensor, list[Reduction]]:
        units = [self._begin(x, key) for x, key in batch]
        nothing = self._message([])
        power = 1 << (workers.bit_length() - 1)
        stands_for = worker + power if worker + power < workers else None
        if workers > power:
            if worker >= power:
                self._settle(units, answers=True)
                yield Swap(worker - power, self._message(units))
            else:
                received = yield Swap(stands_for, nothing)
                if stands_for is not None:
                    self._merge(units, received, is_guest=True)
        for bit in range(power.bit_length() - 1):
            if worker >= power:
                yield Swap(None, nothing)
            else:
                self._settle(units, answers=worker % (1 << bit) == 0)
                received = yield Swap(worker ^ (1 << bit), self._message(units))
                self._merge(units, received)
        if worker < power:
            self._settle(units, answers=worker == 0)
        if workers > power:
            if worker >= power:
                received = yield Swap(worker - power, nothing)
                self._accept(units, received)
            else:
                yield Swap(stands_for, nothing if stands_for is None else self._message(units, with_guest=True))
        return [self._reduction(unit, workers) for unit in units]

    def _begin(self, x: torch.Tensor, key: Key) -> _Unit:
        flat = buffers.as_float32(x)
        kept = self._local.select(flat, key)
        values = _unify_nan(flat.index_select(0, kept))
        return _Unit(len(flat), key, kept, kept, values, kept, values, values[:0], kept[:0], kept[:0])

    def _settle(self, units: list[_Unit], answers: bool) -> None:
        """Round the sums to the values in their payloads; the worker with true `answers` keeps the differences."""
        for unit in units:
            unit.sent = self._local.pack(unit.kept, unit.values, unit.n, unit.key, with_positions=True)
            if self.values == "fp32":
                continue
            rounded = self._next(unit.sent, unit)[1]
            if answers:
                share = torch.zeros_like(unit.values)
                share[torch.searchsorted(unit.kept, unit.mine)] = unit.share
                unit.share = share + torch.where(unit.values.isfinite(), rounded - unit.values, 0.0)
                unit.mine = unit.kept
            unit.values = rounded

    def _message(self, units: list[_Unit], with_guest: bool = False) -> torch.Tensor:
        parts = [torch.empty(0, dtype=torch.uint8)]
        for unit in units:
            parts.append(unit.sent)
            if with_guest:
                parts.append(_pack_bits(torch.isin(unit.guest, unit.theirs)))
        return torch.cat([part.to(parts[-1].device) for part in parts])

    def _next(self, message: torch.Tensor, unit: _Unit) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the positions and values of the first payload in `message`, and the rest of the message."""
        message = buffers.receive(message, unit.kept.device)
        plan, kept, _ = positions.read(backend.load("sparse", message.device), message, unit.n)
        width = 4 if self.values == "fp32" else 2
        length = positions.HEADER + plan.size + width * (unit.n if plan.is_dense else plan.count)
        kept, values = self._local.unpack(message[:length], unit.n, unit.key)
        if plan.is_dense and plan.count < unit.n:
            raise CorruptPayload(f"{plan.count} elements travel as {unit.n}")
        return torch.arange(unit.n, device=values.device) if kept is None else kept, values, message[length:]

    def _merge(self, units: list[_Unit], message: torch.Tensor, is_guest: bool = False) -> None:
        for unit in units:
            kept, values, message = self._next(message, unit)
            if is_guest:
                unit.guest = unit.theirs = kept
            union, places = torch.cat([unit.kept, kept]).unique(return_inverse=True)
            sums = torch.zeros(len(union), dtype=torch.float32, device=union.device)
            # One after the other: no position comes twice in one of them.
            sums[places[: len(unit.kept)]] = unit.values
            sums[places[len(unit.kept) :]] += values
            sums = _unify_nan(sums)
            best = backend.load("selection", sums.device).topk(sums, counts.count_kept(unit.n, self.ratio, self.count))
            unit.kept, unit.values = union[best], sums[best]
            still = torch.isin(unit.mine, unit.kept)
            unit.mine, unit.share = unit.mine[still], unit.share[still]
            unit.theirs = unit.theirs[torch.isin(unit.theirs, unit.kept)]
        if len(message):
            raise CorruptPayload(f"{len(message)} bytes behind the last unit")

    def _accept(self, units: list[_Unit], message: torch.Tensor) -> None:
        """Set the units to the result in `message`, which the worker that took over this worker's elements has sent."""
        for unit in units:
            unit.kept, unit.values, rest = self._next(message, unit)
            unit.sent, message = message[: len(message) - len(rest)].clone(), rest
            length = -(-len(unit.start) // 8)
            arrived = _unpack_bits(message[:length], len(unit.start))
            unit.mine, unit.share = unit.start[arrived], unit.share[arrived]
            message = message[length:]
        if len(message):
            raise CorruptPayload(f"{len(message)} bytes behind the last unit")

    def _reduction(self, unit: _Unit, workers: int) -> Reduction:
        own = self._exact.pack(unit.mine, unit.share, unit.n, unit.key, with_positions=True)
        return Reduction(own, unit.sent, 1.0 / workers)


def _unify_nan(values: torch.Tensor) -> torch.Tensor:
    """Replace every NaN by the same NaN, so that all workers sort them in the same order."""
    return torch.where(values.isnan(), torch.nan, values)


def _pack_bits(mask: torch.Tensor) -> torch.Tensor:
    """Pack (n,) bool into (ceil(n / 8),) uint8, the lowest bit first."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy(), bitorder="little")).to(mask.device)


def _unpack_bits(payload: torch.Tensor, count: int) -> torch.Tensor:
    """Unpack (ceil(n / 8),) uint8 from `_pack_bits` to (count,) bool.

    Raises:
        CorruptPayload: there are fewer bits.
    """
    if 8 * len(payload) < count:
        raise CorruptPayload(f"{8 * len(payload)} bits for {count} elements")
    bits = np.unpackbits(payload.cpu().numpy(), count=count, bitorder="little")
    return torch.from_numpy(bits).bool().to(payload.device)
