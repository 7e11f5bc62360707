"""Codebooks from a histogram: every element becomes the mean of its bucket."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from compressors.base import ROUNDING, CorruptPayload, Law, compute_packed_size, count_elements
from compressors.kernels import buffers
from compressors.lazy import torch
from compressors.quantisation.elementwise import Elementwise
from compressors.random_key import Key
from gradsweep.options.parameters import integer, number


class Codebook(Elementwise):
    """A method that cuts the elements into buckets, by their histogram, and sends each as the mean of its bucket.

    The histogram is exact over 2^16 cells (sign, exponent and 7 bits of the mantissa); no cell is cut.

    Payload, for b = max(2, min(most, n)) buckets (none for an empty tensor):
        b little-endian float32: the means of the buckets in ascending order, 0 for those without elements;
        all NaN if x holds NaN or Inf
        ceil(n * width / 8) bytes: the number of each element's bucket, width = ceil(log2(b)) bits each,
        least significant bit first; all 0 if the means are NaN.

    Means are exact up to their rounding to float32, so Q(x) has the sum of x. A tensor of zeros stays zero. float64 is
    rounded to float32 first, beyond 3.4e38 to Inf; the law holds for the rounded tensor. Nothing is random.
    """

    kernel: ClassVar[str] = "sketch"
    flaw: ClassVar[str] = "a mean is infinite, or the number of a bucket too large"

    @property
    @abstractmethod
    def most(self) -> int:
        """The maximum number of buckets."""

    def _buckets(self, count: int) -> int:
        """Return the number of buckets for a tensor of `count` elements; the payload has a mean for each."""
        return max(2, min(self.most, count)) if count else 0

    def payload_bound(self, shape: Sequence[int]) -> int:
        _, head, width = self.layout(shape)
        return head + compute_packed_size(count_elements(shape), width)

    def layout(self, shape: Sequence[int]) -> tuple[None, int, int]:
        buckets = self._buckets(count_elements(shape))
        return None, 4 * buckets, (buckets - 1).bit_length() if buckets else 0

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, self._buckets(x.numel()), payload)

    def decode_add(self, kernels: ModuleType, payload: torch.Tensor, out: torch.Tensor, weight: float) -> bool:
        if not _are_means(payload[: 4 * self._buckets(out.numel())]):
            raise CorruptPayload("means are infinite or not in ascending order, or some of them are NaN and others not")
        return bool(kernels.decode_add(payload, self._buckets(out.numel()), weight, out))


@dataclasses.dataclass(frozen=True)
class QuantileSketch(Codebook):
    """Every element becomes the mean of its quantile bucket (Jiang et al., "SketchML", SIGMOD 2018, section 3.2).

    The values are cut into `bins` buckets that hold about as many elements each. A cell of the histogram with more
    elements than a bucket's share, such as that of zeros, counts as one share, which leaves more buckets to the others.
    Negative elements share no bucket with others, so no element is sent with the wrong sign: of the buckets
    each side has its proportion, and at least one if it is not empty.

    Unlike in the paper, where a bucket's value is halfway between its ends, it is the mean of its elements,
    which has the smallest error. The paper's coding of the positions of sparse gradients is not part of this
    method. Payload: see `Codebook`.
    """

    name: ClassVar[str] = "quantile_sketch"
    aliases: ClassVar[tuple[str, ...]] = ("sketch", "sketchml")
    paper: ClassVar[str] = "Jiang et al., SketchML, SIGMOD 2018"

    bins: int = integer(256, low=2, high=256)

    @property
    def most(self) -> int:
        return self.bins

    def law(self, shape: Sequence[int]) -> Law:
        # What the mean m of k elements leaves is orthogonal to it: ||x - Q(x)||^2 = ||x||^2 - sum k m^2. The
        # elements of a bucket have one sign, so that k m^2 = (sum |x|)^2 / k >= (sum x^2) / n. One large
        # element among small ones is the worst; for gradients as they are delta is nearly 1.
        count = count_elements(shape)
        return Law(omega=1.0 - 1.0 / max(1, count), delta=1.0 / max(1, count))


@dataclasses.dataclass(frozen=True)
class Statistical(Codebook):
    """Every element becomes the mean of its bin, of 2^bits even bins over `sigmas` standard deviations.

    The codebook of hivemind (Ryabinin et al.), of INTELLECT-1's int8 sums, and of SparseLoCo's kept values. With the
    mean mu and the unbiased standard deviation s of the elements, bins have the width w = sigmas * s / 2^bits; v is in
    bin clamp(round((v - mu) / w) + 2^(bits - 1), 0, 2^bits - 1). What is farther from mu than the last centre shares
    the outermost bin and its mean. Here v is taken as the mean of its cell of the histogram, which is at most 2^-7 of
    v away; bins without elements are left out, so small tensors send no more means than elements.

    Below 1.2e-38, float32's denormals, cells are wide, and bins less even. Of 8 bits, normal elements lose 2.6e-4 of
    their energy, those of a Laplace distribution 7.7e-3, heavier tails more.
    Payload: see `Codebook`.
    """

    name: ClassVar[str] = "statistical"
    aliases: ClassVar[tuple[str, ...]] = ("codebook",)
    paper: ClassVar[str] = "Jaghouar et al., INTELLECT-1, 2024 (hivemind's quantisation)"
    smallest: ClassVar[float] = 2.0**-126

    bits: int = integer(8, low=2, high=8)
    sigmas: float = number(6.0, low=0, high=1000, above=True)

    @property
    def most(self) -> int:
        return 2**self.bits

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        from compressors.kernels.quantiles import bins_of_deviations  # loads numpy

        kernels.encode(x, self._buckets(x.numel()), payload, bins_of_deviations(self.sigmas, self.most))

    @property
    def needs_memory(self) -> bool:
        # Normal numbers differ from their bin's mean by w^2 / 12 on average, in squares.
        return (self.sigmas / 2**self.bits) ** 2 / 12 >= ROUNDING

    def law(self, shape: Sequence[int]) -> Law:
        # Q projects x onto the vectors that are constant in every bin: the error is orthogonal to Q(x) and no longer
        # than x. Of (1, -1) in one bin nothing is left, so there is no contraction for every x.
        return Law(omega=1.0)


def _are_means(payload: torch.Tensor) -> bool:
    """Tell whether an encoder can have written these float32 as means of buckets.

    Either all are NaN, or they ascend, except for those of empty buckets, which are zero.
    """
    means = buffers.read_floats(payload)
    if bool(means.isnan().any()):
        return bool(means.isnan().all())
    used = means[means != 0]
    return bool((used[1:] >= used[:-1]).all())
