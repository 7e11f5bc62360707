"""Quantise to integers of at most 8 bits, relative to a scale that is sent with each bucket."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import Law
from compressors.kernels.dynamic_map import worst_error
from compressors.lazy import torch
from compressors.quantisation import buckets
from compressors.quantisation.elementwise import Bucketed
from compressors.random_key import Key
from gradsweep.options.parameters import InvalidParameter, boolean, choice, integer


@dataclasses.dataclass(frozen=True)
class Int8(Bucketed):
    """Rounding to evenly spaced levels, as DDP's quantization hook and Bagua's MinMaxUInt8 do.

    The flattened tensor is cut into buckets of `bucket_size` elements, the last one shorter (null: it is one
    bucket, as in DDP's hook for a whole tensor).

    `minmax`: the levels are the S + 1 = 2^bits numbers a + (b - a) l / S from the smallest element a of the
    bucket to its largest b. Both arrive exactly, and so does a bucket of equal elements; 0 need not be a level.
    `symmetric`: the levels are m l / L for l = -L..L, L = 2^(bits - 1) - 1, m = max |x|; 0 is one of them.

    An element goes to the nearest level (of two, to the one with the even l), or where `stochastic` to one
    of its two neighbours, with the probabilities that make it unbiased.

    Payload, for B buckets:
        symmetric: B little-endian float32, the m; minmax: 2 B, the pairs (a, b). NaN for a bucket that
        holds NaN or Inf
        per bucket ceil(n_b * bits / 8) bytes: the codes l (minmax) or l + L (symmetric), `bits` bits each,
        least significant bit first.

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays exactly zero. float64 is
    rounded to float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "int8"
    paper: ClassVar[str] = "Gan et al., BAGUA, VLDB 2022"
    kernel: ClassVar[str] = "integers"
    flaw: ClassVar[str] = (
        "a bucket's bounds are not in order, negative or infinite, or a code is above the highest level"
    )

    bits: int = integer(8, low=1, high=8)
    scheme: str = choice("minmax", "minmax", "symmetric")
    bucket_size: int | None = buckets.option(512)
    stochastic: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits == 1 and self.scheme == "symmetric":
            raise InvalidParameter("bits", 1, "an integer from 2 to 8 with scheme=symmetric, which has a level 0")

    def layout(self, shape: Sequence[int]) -> tuple[int | None, int, int]:
        return self.bucket_size, 8 if self.scheme == "minmax" else 4, self.bits

    def law(self, shape: Sequence[int]) -> Law:
        size = self.length(shape)
        if self.scheme == "minmax":
            # An element errs by at most half of (b - a) / S, or has the variance of its square at most; a and b
            # are exact, and (b - a)^2 <= 2 (a^2 + b^2).
            error = max(size - 2, 0) / (2 * (2**self.bits - 1) ** 2)
        else:
            # The same with m / L, where only m is exact. A nearest level is no further than 0, so that errors
            # come with as much energy of x: E / (m^2 + E), which grows with E.
            levels = 2 ** (self.bits - 1) - 1
            error = max(size - 1, 0) / (4 * levels**2)
            error = min(error, math.sqrt(size) / levels) if self.stochastic else error / (1 + error)
        delta = 1.0 - error if error < 1 else None
        return Law(unbiased=True, omega=error) if self.stochastic else Law(omega=error, delta=delta)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        length = self.length(x.shape)
        kernels.encode(x, key.mix(), self.bits, length, self.scheme == "minmax", self.stochastic, payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        length = self.length(out.shape)
        return bool(kernels.decode_add(payload, self.bits, length, self.scheme == "minmax", weight, out))


@dataclasses.dataclass(frozen=True)
class Dynamic8(Bucketed):
    """Dynamic tree quantisation (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016), in
    blocks (Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", ICLR 2022).

    A byte stands for a multiple of the largest magnitude m of its bucket of `bucket_size` elements (null: the
    unit is one); the multiples are dense near 1 and go down to 5.5e-7. The paper of 2016 has no buckets, and another
    layout of the 8 bits. The multiples here are those of bitsandbytes' signed dynamic map, the code of the paper of
    2022: for e = 0..6, the interval [0.1, 1] * 10^-e is cut into 2^(6 - e) parts of equal length, whose midpoints are
    127 magnitudes; these with both signs, 0, and 1. There is no -1: it arrives as -0.9929688. An element goes to the
    nearest of them (from halfway between two, to the smaller magnitude).

    Payload, for B buckets:
        B little-endian float32: the m; NaN for a bucket that holds NaN or Inf
        n bytes: 0 for zero, r for the r-th smallest of the 127 midpoints, 128 for 1, 128 + r for minus the r-th.

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays exactly zero. float64 is
    rounded to float32 first, beyond 3.4e38 to Inf; the law holds for the rounded tensor.
    """

    name: ClassVar[str] = "dynamic8"
    aliases: ClassVar[tuple[str, ...]] = ("u8bit",)
    paper: ClassVar[str] = (
        "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016; "
        "Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022"
    )
    reported: ClassVar[str] = "MNIST, CIFAR-10 and ImageNet: nothing lost; the paper's abstract"
    kernel: ClassVar[str] = "dynamic"
    flaw: ClassVar[str] = "a norm is negative or infinite"

    bucket_size: int | None = buckets.option(4096)

    def law(self, shape: Sequence[int]) -> Law:
        error = worst_error(self.length(shape))
        return Law(omega=error, delta=1.0 - error)

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, self.length(x.shape), payload)
