"""Quantise to 8-bit floating point, relative to a scale that is sent with each bucket."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import Law
from compressors.kernels.fp8_formats import FORMATS
from compressors.lazy import torch
from compressors.quantisation import buckets
from compressors.quantisation.elementwise import Bucketed
from compressors.random_key import Key
from gradsweep.options.parameters import boolean, choice


@dataclasses.dataclass(frozen=True)
class FP8(Bucketed):
    """8-bit floating point with a scale for each bucket, as torchft's quantised collectives send it.

    The formats are those of Micikevicius et al., "FP8 formats for deep learning", 2022: `e4m3` has a sign, 4 bits of
    exponent and 3 of mantissa, `e5m2` 5 and 2. The elements of a bucket of `bucket_size` (null: the unit is one) are
    multiplied by V / m, where m is their largest magnitude and V the largest finite number of the format (448 or
    57,344), so that none overflows. They go to the nearest number of the format, of two to the one with an even
    mantissa, or where `stochastic` to one of the two neighbours, with the probabilities that make it unbiased.

    Payload, for B buckets:
        B little-endian float32: the m; NaN for a bucket that holds NaN or Inf
        n bytes: the numbers; 0 has no sign

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays exactly zero. float64 is
    rounded to float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "fp8"
    aliases: ClassVar[tuple[str, ...]] = ("float8",)
    paper: ClassVar[str] = "Micikevicius et al., FP8 formats for deep learning, 2022"
    kernel: ClassVar[str] = "fp8"
    flaw: ClassVar[str] = "a scale is negative or infinite, or a code is no finite number"

    format: str = choice("e4m3", *FORMATS)
    bucket_size: int | None = buckets.option(4096)
    stochastic: bool = boolean(False)

    def law(self, shape: Sequence[int]) -> Law:
        form, others = FORMATS[self.format], max(self.length(shape) - 1, 0)
        gap = 2.0**-form.mantissa  # between 1 and the next number, relative to which an element above `smallest` errs
        step = 1 / (form.grid * form.largest)  # between the numbers below `smallest`, relative to m
        if self.stochastic:  # p (1 - p) gap^2 / (1 + p gap)^2 is largest at p = 1 / (2 + gap)
            return Law(unbiased=True, omega=gap**2 / (4 * (1 + gap)) + others * step**2 / 4)
        error = (gap / 2 / (1 + gap / 2)) ** 2 + others * step**2 / 4
        return Law(omega=error, delta=1.0 - error)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, key.mix(), self.format, self.length(x.shape), self.stochastic, payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        return bool(kernels.decode_add(payload, self.format, self.length(out.shape), weight, out))
