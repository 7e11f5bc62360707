"""Quantisers whose levels are powers of two: close together where gradients are dense, around zero."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import Law
from compressors.lazy import torch
from compressors.quantisation import buckets
from compressors.quantisation.elementwise import Bucketed, Levelled
from compressors.random_key import Key
from gradsweep.options.parameters import choice, integer


@dataclasses.dataclass(frozen=True)
class NaturalCompression(Bucketed):
    """Stochastic rounding to powers of two (Horvath et al., "Natural Compression for Distributed Deep
    Learning", MSML 2022, definition 2): the exponent of a float32 is kept, its fraction is the probability
    of rounding up.

    The paper sends the sign and the whole exponent, 9 bits. Here the exponent is counted down from that of
    a scale, the smallest power of two (from 2^-126 on) that no element of the bucket exceeds, and takes 7
    bits: the 127 powers from the scale down. What is smaller than all of them, 2^-126 of the scale,
    becomes the smallest one or zero, which is unbiased too; so are denormal elements.

    Payload, for B buckets of `bucket_size` elements (null: the unit is one), n elements in all:
        B little-endian float32: the scales; 0 for a bucket of zeros, NaN for one that holds NaN or Inf
        n bytes: bit 7 is the sign, bits 0 to 6 are k; the element is scale * 2^(k - 127), or 0 for k = 0.

    A NaN or Inf makes its whole bucket NaN at the receiver. Zeros stay zeros. The scale 2^128 is beyond
    float32 and replaced by the largest float32, 6e-8 smaller. float64 is rounded to float32 first, beyond
    3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "natural"
    aliases: ClassVar[tuple[str, ...]] = ("natural_compression",)
    paper: ClassVar[str] = "Horvath et al., Natural Compression for Distributed Deep Learning, MSML 2022"
    kernel: ClassVar[str] = "natural"
    flaw: ClassVar[str] = "a scale is not a power of two"

    bucket_size: int | None = buckets.option(None)

    def law(self, shape: Sequence[int]) -> Law:
        # Between a and 2a the variance is (x - a)(2a - x), at most x^2 / 8, at x = 4a/3. What is below the
        # smallest power adds at most 2^-254 of the largest square for each element: nothing in float32.
        return Law(unbiased=True, omega=0.125)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, key.mix(), self.length(x.shape), payload)


@dataclasses.dataclass(frozen=True)
class LogarithmicDithering(Levelled):
    """Stochastic rounding of |x| / norm to one of the levels 0, 2^(1-S), ..., 1/2 and 1, for S = `steps`.

    Payload, for B buckets:
        B little-endian float32: the norms; NaN for a bucket that holds NaN or Inf
        per bucket ceil(n_b * width / 8) bytes: the codes k * sign(x) + S in [0, 2S], `width` =
        ceil(log2(2S + 1)) bits each, least significant bit first; k = 0 is zero, else the element is
        sign(x) * norm * 2^(k - S).

    A NaN or Inf makes its whole bucket NaN at the receiver. Zeros stay zeros. A norm beyond float32 (l2 of
    huge elements) is replaced by the largest float32, which is still unbiased. float64 is rounded to
    float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    kernel: ClassVar[str] = "dithering"

    bucket_size: int | None = buckets.option(None)
    norm: str = choice("l2", "max", "l2")

    def law(self, shape: Sequence[int]) -> Law:
        # In units of the norm: a y above the smallest power l has a variance of at most y^2 / 8, one below
        # has y (l - y). If a fraction b^2 of the energy is below, Cauchy-Schwarz gives at most
        # l sqrt(n) b - b^2 + (1 - b^2) / 8 in all for l2; for max, which is no larger than l2, no more.
        # The largest value of that over 0 <= b <= 1 (theorem 4 of NUQSGD has 1/8 + (l sqrt(n) / 2)^2, or
        # l sqrt(n) - 7/8).
        reach = 2.0 ** (1 - self.steps) * math.sqrt(self.length(shape))
        return Law(unbiased=True, omega=0.125 + 2 / 9 * reach**2 if reach <= 2.25 else reach - 1.0)


@dataclasses.dataclass(frozen=True)
class NaturalDithering(LogarithmicDithering):
    """Stochastic rounding of |x| / norm to one of the levels 0, 2^(1 - levels), ..., 1/2 and 1 (Horvath et al.,
    "Natural Compression for Distributed Deep Learning", MSML 2022, definition 3).

    NUQSGD has the same levels, counted differently (`levels` there is one less) and of buckets. The payload,
    and what becomes of NaN, Inf and zeros: see `LogarithmicDithering`.
    """

    name: ClassVar[str] = "natural_dithering"
    paper: ClassVar[str] = "Horvath et al., Natural Compression for Distributed Deep Learning, MSML 2022"

    levels: int = integer(7, low=1, high=127)

    @property
    def steps(self) -> int:
        return self.levels


@dataclasses.dataclass(frozen=True)
class NUQSGD(LogarithmicDithering):
    """QSGD with levels that are not uniform: 0, 2^-levels, ..., 1/2 and 1, times the l2 norm of a bucket
    (Ramezani-Kebrya et al., "NUQSGD", JMLR 2021, section 3, where `levels` is s: the levels between 0 and 1).

    Natural dithering has the same levels, counted differently (`levels` there is one more), of a whole unit.
    All codes have the same length here; the paper goes on to compress them by an entropy code. The payload,
    and what becomes of NaN, Inf and zeros: see `LogarithmicDithering`.
    """

    name: ClassVar[str] = "nuqsgd"
    paper: ClassVar[str] = "Ramezani-Kebrya et al., NUQSGD, JMLR 2021"

    levels: int = integer(6, low=1, high=126)
    bucket_size: int | None = buckets.option(8192)

    @property
    def steps(self) -> int:
        return self.levels + 1
