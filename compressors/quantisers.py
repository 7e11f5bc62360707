"""Quantisers: every element travels, in a few bits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from compressors.base import Key, Law, element_count, packed_size
from compressors.elementwise import Elementwise
from compressors.parameters import choice, integer

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class QSGD(Elementwise):
    """Stochastic rounding to s levels of a norm (Alistarh et al., "QSGD", NeurIPS 2017, section 3.1).

    The flattened tensor is cut into buckets of `bucket_size` elements, the last one shorter. With the
    norm m of its bucket, an element becomes sign(x) * m * l / s where l = floor(|x| / m * s + u) and u is
    uniform in [0, 1), so E[Q(x)] = x for either norm. `max` has the smaller variance for the same bits
    and sends the largest element of a bucket exactly; `l2` is the paper's and sends more zeros.

    Payload, for B buckets:
        B little-endian float32: the norms; NaN for a bucket that holds NaN or Inf
        per bucket ceil(n_b * width / 8) bytes: the codes l * sign(x) + s in [0, 2s], `width` =
        ceil(log2(2s + 1)) bits each, least significant bit first.

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays exactly zero. A norm
    beyond float32 (l2 of huge elements) is replaced by the largest float32, which is still unbiased.
    float64 is rounded to float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "qsgd"
    paper: ClassVar[str] = "Alistarh et al., QSGD, NeurIPS 2017"
    kernel: ClassVar[str] = "qsgd"

    levels: int = integer(7, low=1, high=32767)
    bucket_size: int = integer(512, low=1, high=2**31 - 1)
    norm: str = choice("max", "max", "l2")

    @property
    def width(self) -> int:
        """Bits per code."""
        return (2 * self.levels).bit_length()

    def payload_bound(self, shape: Sequence[int]) -> int:
        full, rest = divmod(element_count(shape), self.bucket_size)
        size = full * (4 + packed_size(self.bucket_size, self.width))
        return size + (4 + packed_size(rest, self.width) if rest else 0)

    def law(self, shape: Sequence[int]) -> Law:
        size = min(element_count(shape), self.bucket_size)
        # An element at the fraction f between two levels has the variance (m / s)^2 f (1 - f); f is at most
        # |x| s / m. Lemma 3.1 of the paper for l2; the same with m = max |x| <= ||x||.
        quarter = 1.0 if self.norm == "l2" else 0.25
        return Law(unbiased=True, omega=min(quarter * size / self.levels**2, math.sqrt(size) / self.levels))

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, key.bits(), self.levels, self.width, self.bucket_size, self.norm == "l2", payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float) -> str:
        if kernels.decode_add(payload, self.levels, self.width, self.bucket_size, weight, out):
            return ""
        return f"a norm is negative or infinite, or a code is above {2 * self.levels}"
