"""ATOMO with the elements themselves as atoms: unbiased sparsification with the least variance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import EXACT, Compressor, CorruptPayload, Law, count_elements
from compressors.kernels import backend, buffers
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import magnitudes, positions
from gradsweep.options.parameters import choice, number

_MIXED, _ALL_LARGE = 1, 2
_MAGNITUDE = 0x7FFFFFFF
_LARGEST = 3.4028234663852886e38


@dataclasses.dataclass(frozen=True)
class Atomo(Compressor):
    """Element-wise atoms (Wang et al., "ATOMO", NeurIPS 2018, Algorithm 1 in the standard basis).

    An element is kept with the probability p = min(1, |x| / t) and becomes x / p, so E[Q(x)] = x. The scale t
    makes the sum of p, the expected number of kept elements, the budget s: `budget`, or `ratio` of the
    elements but at least 1. These p have the least variance of all with that sum. Where at most s elements are
    not zero, all of those are kept.

    x / p is x itself for elements of at least t, and sign(x) * t for all others: one number and signs say it.
    With s = ||x||_1 / max |x| nothing is above t = max |x|, and this is TernGrad without clipping; with s =
    ||x||_1 / ||x||_2 it is QSGD with one level of the l2 norm (section 4 of the paper).

    t is found exactly, by Newton's method on the sum of p, which is piecewise linear in 1 / t and concave: every
    pass over the tensor counts and sums what the last t divides it into, until no element changes sides. Then
    t is rounded up to float32.

    Payload, for k kept of n elements, m of them of at least t:
        8 bytes       the header of `positions`; its `extra` is 0 if m = 0, 2 if m = k > 0, else 1
        index part    the coding `indices` of the positions, see there
        4 bytes       t as little-endian float32; NaN if the tensor holds NaN or Inf
        bits          only if `extra` is 1: ceil(k / 8) bytes, bit 1 for an element of at least t, in ascending order
                      of positions and from the least significant bit on
        signs         ceil((k - m) / 8) bytes, bit 1 for each negative one of the others
        values        m little-endian float32

    A NaN or Inf makes every element NaN at the receiver, with k = 0. A t beyond float32 is replaced by the
    largest float32, which is still unbiased. p is known to 2^-24 of itself or 2^-31. float64 is rounded to float32
    first.
    """

    name: ClassVar[str] = "atomo"
    paper: ClassVar[str] = "Wang et al., ATOMO, NeurIPS 2018"
    sparse: ClassVar[bool] = True

    ratio: float = number(0.01, low=0, high=1, above=True)
    budget: float | None = number(None, low=0, above=True, optional=True)
    indices: str = choice("auto", *positions.OPTIONS)

    def _count_expected(self, n: int) -> float:
        return min(n, max(1.0, self.ratio * n) if self.budget is None else self.budget)

    def law(self, shape: Sequence[int]) -> Law:
        n = count_elements(shape)
        if n == 0:
            return EXACT
        # No p of the same sum have a smaller variance, sum x^2 (1 / p - 1); p = s / n for all is one of them.
        return Law(unbiased=True, omega=n / self._count_expected(n) - 1.0)

    def payload_bound(self, shape: Sequence[int]) -> int:
        n = count_elements(shape)
        # Elements of at least t are at most s, up to the rounding of a sum of n numbers.
        large = min(n, math.ceil(self._count_expected(n) * (1.0 + 1e-9)) + 1)
        return positions.HEADER + positions.bound(self.indices, n, n) + 4 + 2 * -(-n // 8) + 4 * large

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return None

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        flat = buffers.as_float32(x)
        kernels, sparse = backend.load("atomo", x.device), backend.load("sparse", x.device)
        n = len(flat)
        scale = self.scale(kernels, flat)
        kept = torch.zeros(0, dtype=torch.int64, device=x.device)
        if scale > 0.0:
            kept = kernels.draw_kept(flat, key.mix(), scale, magnitudes.bits_of(scale), self._count_expected(n))
        values = flat[kept]
        threshold = magnitudes.bits_of(scale) if kept.numel() else 0
        if scale >= _LARGEST:  # no element is above t, which stands for those that equal it
            threshold = magnitudes.INFINITY
        is_large, large, negative = _part(values, threshold)
        plan = positions.plan(sparse, kept, n, self.indices, None)
        extra = 0 if not len(large) else _MIXED if len(negative) else _ALL_LARGE
        sizes = [positions.HEADER, plan.size, 4, -(-len(kept) // 8) if extra == _MIXED else 0]
        sizes += [-(-len(negative) // 8), 4 * len(large)]
        payload = buffers.prepare(out, sum(sizes), x.device)
        header, index, head, bits, signs, rest = payload.split(sizes)
        header.copy_(torch.tensor(list(plan.header(extra)), dtype=torch.uint8))
        positions.write(sparse, kept, plan, index)
        buffers.write_floats(torch.tensor([scale]), head)
        if extra == _MIXED:
            kernels.write_flags(is_large, bits)
        kernels.write_flags(negative, signs)
        buffers.write_floats(large, rest)
        return buffers.deliver(payload, out)

    def scale(self, kernels: ModuleType, x: torch.Tensor) -> float:
        """Return t for `x` (n,) float32; 0 for a tensor of zeros, NaN if it holds NaN or Inf."""
        expected = self._count_expected(len(x))
        large, rest, largest = kernels.split_at(x, magnitudes.INFINITY)
        if large:
            return math.nan
        if rest == 0.0:
            return 0.0
        if expected >= len(x):
            return magnitudes.value_of(1)
        scale = math.inf
        while rest > 0.0 and large < expected:
            found = min(magnitudes.value_of(magnitudes.bits_of(rest / (expected - large))), _LARGEST)
            if found >= scale:
                break  # by rounding alone: the exact ones fall
            scale = found
            if largest < magnitudes.bits_of(scale):
                break  # nothing changes sides
            large, rest, largest = kernels.split_at(x, magnitudes.bits_of(scale))
        return scale

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        payload = buffers.receive(payload, out.device)
        kernels, sparse = backend.load("atomo", out.device), backend.load("sparse", out.device)
        n = out.numel()
        plan, kept, extra = positions.read(sparse, payload, n)
        rest = payload[positions.HEADER + plan.size :]
        if len(rest) < 4:
            raise CorruptPayload("the payload ends before its scale")
        scale = float(buffers.read_floats(rest[:4]))
        if scale < 0.0 or math.isinf(scale) or (plan.count and not scale > 0.0) or extra > _ALL_LARGE:
            raise CorruptPayload(f"the scale of {plan.count} elements is {scale}, the kind of their values {extra}")
        values = _read_values(kernels, rest[4:], plan.count, scale, extra)
        with buffers.accumulator(out) as total:
            if math.isnan(scale):
                total.fill_(math.nan)
            elif kept is None:
                total.add_(values, alpha=weight)
            else:
                sparse.add_at(kept, values, weight, total)

    def kernel_modules(self) -> tuple[str, ...]:
        return "atomo", "sparse"


def _part(values: torch.Tensor, threshold: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which `values` are of at least `threshold` (the bits of a float32), these values, and the signs of the
    others.

    The signs are true for negative values.
    """
    parts = buffers.split(values)
    # by bits: a comparison of numbers may take denormals for zeros
    masks = [(part.view(torch.int32) & _MAGNITUDE) >= threshold for part in parts]
    large = [part[mask] for part, mask in zip(parts, masks, strict=True)]
    negative = [part[~mask].signbit() for part, mask in zip(parts, masks, strict=True)]
    return torch.cat(masks), torch.cat(large), torch.cat(negative)


def _read_values(kernels: ModuleType, payload: torch.Tensor, count: int, scale: float, extra: int) -> torch.Tensor:
    """Return the values of the kept elements, decoded from the part of the payload after the scale."""
    is_large = torch.full((count,), extra == _ALL_LARGE, device=payload.device)
    if extra == _MIXED:
        size = -(-count // 8)
        flags = kernels.read_flags(payload[:size], count) if len(payload) >= size else None
        if flags is None:
            raise CorruptPayload(f"no {count} bits say which elements are sent as they are")
        is_large, payload = flags, payload[size:]
    large = int(is_large.sum())
    small = count - large
    size = -(-small // 8)
    if len(payload) != size + 4 * large:
        raise CorruptPayload(f"{len(payload)} bytes for {small} signs and {large} values")
    negative = kernels.read_flags(payload[:size], small)
    if negative is None:
        raise CorruptPayload("a sign of an element that is not there")
    values = torch.empty(count, device=payload.device)
    exact, signs = buffers.read_floats(payload[size:]), negative
    for part, mask in zip(buffers.split(values), buffers.split(is_large), strict=True):
        found = int(mask.sum())
        part[mask], exact = exact[:found], exact[found:]
        part[~mask], signs = torch.where(signs[: len(part) - found], -scale, scale), signs[len(part) - found :]
    return values
