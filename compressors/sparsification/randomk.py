"""Sparsifiers that keep random elements, which are the same on all workers: only values travel.

The positions are a function of the key without its worker, which the receiver knows. So payloads have no index part,
and the network can add those of several workers.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from compressors.base import EXACT, Compressor, Law, count_elements
from compressors.kernels import backend, buffers
from compressors.kernels.uniform import uniform
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts
from gradsweep.options.parameters import boolean, choice

_DTYPES = {"fp32": "float32", "fp16": "float16"}
_BYTES = {"fp32": 4, "fp16": 2}
_REMEMBERED = 50  # positions take 4 bytes each: at most 2 % of the gradient


@dataclasses.dataclass(frozen=True)
class SharedSubset(Compressor):
    """Sends k of n elements, each with the probability k / n; all workers draw the same.

    k is `ratio` of the number of elements by the rule `count` (see `counts`). With `unbiased` the receiver
    multiplies by n / k, so that E[Q(x)] = x; without, Q(x) is x or zero, which is what a memory wants.

    Payload: k little-endian values in the order of their positions, float32 or (`values: fp16`) IEEE half
    floats, rounded to nearest. They are not multiplied by n / k, so that this costs no range; even so a
    half float of more than 65519 arrives as Inf, one below 3e-8 as zero, and the network's sums of half
    floats are rounded.

    A NaN or Inf anywhere in x, whether it is kept or not, makes all values of the payload NaN. A receiver
    that finds NaN in the first value makes every element NaN, also when it is a sum of payloads.
    float64 is rounded to float32 first.
    """

    shared_draws: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    ratio: float = counts.ratio(0.01)
    count: str = counts.rule("ceil")
    values: str = choice("fp32", "fp32", "fp16")
    unbiased: bool = boolean(False)

    @property
    def sum_dtype(self) -> str:  # type: ignore[override]
        return _DTYPES[self.values]

    @property
    def largest(self) -> float:  # type: ignore[override]
        """The largest magnitude of a value; elements above it may arrive as Inf."""
        return 65504.0 if self.values == "fp16" else math.inf

    @property
    def smallest(self) -> float:  # type: ignore[override]
        """The smallest magnitude at which an element loses at most 2^-11 of itself by rounding to half floats."""
        return 2.0**-14 if self.values == "fp16" else 0.0

    def count_kept(self, n: int) -> int:
        """Return how many of n elements are sent."""
        return counts.count_kept(n, self.ratio, self.count)

    @property
    def needs_memory(self) -> bool:
        return not self.unbiased and super().needs_memory

    def law(self, shape: Sequence[int]) -> Law:
        n = count_elements(shape)
        kept = self.count_kept(n)
        if self.values == "fp16" and n:  # rounds, to zero or Inf where x is small or large enough
            return Law()
        if kept == n:
            return EXACT
        if self.unbiased:
            # (n / k)^2 x^2 with the probability k / n, for every element.
            return Law(unbiased=True, omega=n / kept - 1.0)
        return Law(delta=kept / n)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return _BYTES[self.values] * self.count_kept(count_elements(shape))

    @abstractmethod
    def take(self, x: torch.Tensor, key: Key, values: torch.Tensor) -> bool:
        """Copy the kept elements of `x`, 1-D plain float32, to `values`; return whether all of `x` is finite.

        `key` is the key without a worker, which all workers share.
        """

    @abstractmethod
    def give(self, values: torch.Tensor, key: Key, weight: float, out: torch.Tensor) -> None:
        """Add `weight` times the float32 `values` to the kept elements of `out`, 1-D plain float32."""

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        flat = buffers.as_float32(x)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        if not len(flat):
            return buffers.deliver(payload, out)
        with buffers.floats_of(payload, self.count_kept(len(flat)), _DTYPES[self.values]) as values:
            if not self.take(flat, key.share(), values):
                values.fill_(float("nan"))
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device, self.payload_bound(out.shape))
        if not len(payload):
            return
        values = buffers.read_floats(payload) if self.values == "fp32" else payload.clone().view(torch.float16).float()
        if self.unbiased:
            weight *= out.numel() / len(values)
        with buffers.accumulator(out) as total:
            if bool(values[0].isnan()):
                total += values[0]
            else:
                self.give(values, key.share(), weight, total)


@dataclasses.dataclass(frozen=True)
class RandomK(SharedSubset):
    """A random subset of the elements (Stich et al., "Sparsified SGD with memory", NeurIPS 2018, rand_k).

    All subsets of k elements are equally likely, up to the quality of the generator: numbers below n are
    drawn until k of them are different. See `SharedSubset` for k, the payload and NaN.

    On the CPU every thread that draws keeps a map of a bit for every element of its largest unit, 3 % of its bytes.
    """

    name: ClassVar[str] = "randomk"
    aliases: ClassVar[tuple[str, ...]] = ("random_k",)
    paper: ClassVar[str] = "Stich et al., Sparsified SGD with memory, NeurIPS 2018"
    reported: ClassVar[str] = "CIFAR-100, ResNet-18, error feedback: 69.9 % (71.4 %); documentation of BytePS"

    @functools.cached_property
    def _recent(self) -> dict[int, tuple[object, torch.Tensor]]:
        """The last key of each unit, with the positions drawn for it."""
        return {}

    def positions(self, n: int, key: Key, device: torch.device) -> torch.Tensor:
        """Return the positions of the kept elements among n, ascending integers.

        If there are few, they are remembered until the unit's next step, since a payload is decoded soon after it was
        made.
        """
        draw = (key, n, device, self.count_kept(n))
        kept, found = self._recent.get(key.unit, (None, None))
        if found is None or kept != draw:
            found = backend.load("randomk", device).subset(key.mix(), n, self.count_kept(n), device)
            if _REMEMBERED * self.count_kept(n) <= n:
                self._recent[key.unit] = (draw, found)
        return found

    def take(self, x: torch.Tensor, key: Key, values: torch.Tensor) -> bool:
        kernels = backend.load("randomk", x.device)
        return bool(kernels.take(x, self.positions(len(x), key, x.device), values))

    def give(self, values: torch.Tensor, key: Key, weight: float, out: torch.Tensor) -> None:
        kept = self.positions(len(out), key, out.device)
        backend.load("sparse", out.device).add_at(kept, values, weight, out)

    def kernel_modules(self) -> tuple[str, ...]:
        return "randomk", "sparse"


@dataclasses.dataclass(frozen=True)
class BlockRandomK(SharedSubset):
    """One run of neighbouring elements that starts anywhere (Vogels et al., "PowerSGD", NeurIPS 2019, "Random
    Block").

    The run has k elements and goes on at the front when it comes to the end, so that every element is kept
    with the same probability k / n. Read and written as fast as memory allows, but neighbours are kept or lost
    together. See `SharedSubset` for k, the payload and NaN.
    """

    name: ClassVar[str] = "block_randomk"
    aliases: ClassVar[tuple[str, ...]] = ("random_block",)
    paper: ClassVar[str] = "Vogels et al., PowerSGD, NeurIPS 2019"

    def start(self, n: int, key: Key) -> int:
        """Return the position where the run of kept elements begins."""
        return min(int(uniform(key.mix(), 1)[0] * n), n - 1)

    def take(self, x: torch.Tensor, key: Key, values: torch.Tensor) -> bool:
        first = self.start(len(x), key)
        until_end = min(len(values), len(x) - first)
        values[:until_end] = x[first : first + until_end]
        values[until_end:] = x[: len(values) - until_end]
        return bool(backend.load("selection", x.device).is_finite(x))

    def give(self, values: torch.Tensor, key: Key, weight: float, out: torch.Tensor) -> None:
        first = self.start(len(out), key)
        until_end = min(len(values), len(out) - first)
        out[first : first + until_end] += values[:until_end] * weight
        out[: len(values) - until_end] += values[until_end:] * weight

    def kernel_modules(self) -> tuple[str, ...]:
        return ("selection",)
