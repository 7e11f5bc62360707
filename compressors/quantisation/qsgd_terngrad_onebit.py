"""Quantisers that send every element in a few bits: QSGD, TernGrad and 1-bit."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from compressors.base import Compressor, CorruptPayload, Law, compute_packed_size, count_elements
from compressors.kernels import backend, buffers, elias_omega
from compressors.lazy import torch
from compressors.message import Decode
from compressors.quantisation import buckets
from compressors.quantisation.elementwise import Bucketed, Levelled
from compressors.random_key import Key
from gradsweep.options.parameters import boolean, choice, integer, number


@dataclasses.dataclass(frozen=True)
class QSGD(Levelled):
    """Stochastic rounding to s levels of a norm (Alistarh et al., "QSGD", NeurIPS 2017, section 3.1).

    The flattened tensor is cut into buckets of `bucket_size` elements, the last one shorter (null: it is
    one bucket). With the norm m of its bucket, an element becomes sign(x) * m * l / s where
    l = floor(|x| / m * s + u) and u is uniform in [0, 1), so E[Q(x)] = x for either norm. `max` has the
    smaller variance for the same bits and sends the largest element of a bucket exactly; `l2` is the paper's
    and sends more zeros.

    Payload with coding=fixed, for B buckets:
        B little-endian float32: the norms; NaN for a bucket that holds NaN or Inf
        per bucket ceil(n_b * width / 8) bytes: the codes l * sign(x) + s in [0, 2s], `width` =
        ceil(log2(2s + 1)) bits each, least significant bit first.

    With coding=elias, the code of the paper's section 3.2, which is short where most levels are 0:
        B float32 as above
        B little-endian integers of `length_bytes` bytes: how many bytes the stream of a bucket has
        the streams: for every element with l > 0, in order, the Elias omega code of the distance from the
        one before (from the element in front of the bucket for the first), its sign bit (1 for minus) and
        the omega code of l; the first bit is the least significant one of the first byte, and less than
        8 ones fill the last byte. A bucket of NaN has an empty stream.

    With `unbiased: false` the receiver divides all that by tau = 1 + min(n / s^2, sqrt(n) / s), n being the
    elements of a (full) bucket, which makes a contraction of it (Koloskova et al., "Decentralized Stochastic
    Optimization and Gossip Algorithms with Compressed Communication" (CHOCO-SGD), ICML 2019, for l2).

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays exactly zero. A norm
    beyond float32 (l2 of huge elements) is replaced by the largest float32, which is still unbiased.
    float64 is rounded to float32 first, beyond 3.4e38 to Inf; the laws hold for the rounded tensor.
    """

    name: ClassVar[str] = "qsgd"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "leansgd_qsgd": {"levels": 1, "bucket_size": None, "norm": "l2", "coding": "elias"},
        "random_dithering": {"levels": 255, "bucket_size": None, "norm": "l2"},
    }
    paper: ClassVar[str] = "Alistarh et al., QSGD, NeurIPS 2017"
    reported: ClassVar[str] = "ImageNet, ResNet-152, 16 GPUs: full accuracy; the paper's abstract"
    kernel: ClassVar[str] = "qsgd"

    levels: int = integer(7, low=1, high=32767)
    bucket_size: int | None = buckets.option(512)
    norm: str = choice("max", "max", "l2")
    coding: str = choice("fixed", "fixed", "elias")
    unbiased: bool = boolean(True)

    @property
    def steps(self) -> int:
        return self.levels

    @property
    def _longest(self) -> int:
        """The most bits that coding=elias spends on an element: those of the gap 1, the sign and the highest level.

        An element after a gap g may take more bits, but fewer than g elements of gap 1: the code of g has at most 2g -
        1 bits.
        """
        return 2 + elias_omega.length(self.levels)

    def length_bytes(self, shape: Sequence[int]) -> int:
        """Return the number of bytes of the field for a stream's length: enough for the longest possible stream of a
        bucket.
        """
        longest = compute_packed_size(self.length(shape), self._longest)
        return -(-longest.bit_length() // 8)

    def payload_bound(self, shape: Sequence[int]) -> int:
        if self.coding == "elias":
            return buckets.payload_size(shape, self.bucket_size, 4 + self.length_bytes(shape), self._longest)
        return super().payload_bound(shape)

    def payload_size(self, shape: Sequence[int]) -> int | None:
        return None if self.coding == "elias" and count_elements(shape) else self.payload_bound(shape)

    def law(self, shape: Sequence[int]) -> Law:
        size = self.length(shape)
        # An element at the fraction f between two levels has the variance (m / s)^2 f (1 - f), at most a quarter
        # of (m / s)^2; and f is at most |x| s / m, so the sum is at most m ||x||_1 / s (lemma 3.1 of the paper,
        # for l2, without the quarter; the same with m = max |x| <= ||x||).
        omega, tau = min(size / (2 * self.levels) ** 2, math.sqrt(size) / self.levels), self._tau(shape)
        # E ||x - Q / tau||^2 = ||x||^2 - 2 ||x||^2 / tau + E ||Q||^2 / tau^2, and tau is at least 1 + omega.
        return Law(unbiased=True, omega=omega) if self.unbiased else Law(delta=2 / tau - (1 + omega) / tau**2)

    def _tau(self, shape: Sequence[int]) -> float:
        """Return tau, by which the receiver divides."""
        size = self.length(shape)
        return 1.0 if self.unbiased else 1 + min(size / self.levels**2, math.sqrt(size) / self.levels)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        if self.coding == "fixed":
            return super().compress(x, key, out)
        values, field = buffers.as_float32(x), self.length_bytes(x.shape)
        payload = buffers.prepare(out, self.payload_bound(x.shape), x.device)
        kernels = backend.load("elias", x.device)
        used = kernels.encode(values, key.mix(), self.levels, self.length(x.shape), field, self.norm == "l2", payload)
        return buffers.deliver(payload[:used], out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        weight /= self._tau(out.shape)
        if self.coding == "fixed":
            return super().decompress_add(payload, out, key, weight)
        payload, field = buffers.receive(payload, out.device), self.length_bytes(out.shape)
        kernels = backend.load("elias", out.device)
        with buffers.accumulator(out) as total:
            if not kernels.decode_add(payload, self.levels, self.length(out.shape), field, weight, total):
                raise CorruptPayload("a norm is negative or infinite, or a stream is not one of Elias codes in range")

    def build_decoder(self, out: torch.Tensor, *, replace: bool = False) -> Decode:
        if self.unbiased and self.coding == "fixed":
            return super().build_decoder(out, replace=replace)
        return Compressor.build_decoder(self, out, replace=replace)

    def kernel_modules(self) -> tuple[str, ...]:
        return ("qsgd" if self.coding == "fixed" else "elias",)


@dataclasses.dataclass(frozen=True)
class TernGrad(Bucketed):
    """-1, 0 or 1 times a scale: an element is sent with the probability |x| / scale (Wen et al., "TernGrad",
    NeurIPS 2017, equation 3; layer-wise ternarising in section 4).

    First the elements of a bucket (null: of the unit) are clipped to `clip` of their standard deviations
    (equation 11; 0: they are not), then the scale is the largest magnitude that is left. Where all elements
    are equal, or there is one alone, there is no deviation to clip to, and nothing is clipped.

    With `share_scale` the workers agree on the largest of their scales, bucket by bucket, as in section 4
    of the paper; a worker that has not been told (`agree`) takes its own. A bucket that holds NaN or Inf
    asks for no scale, and is NaN at the receiver all the same.

    Payload, for B buckets:
        B little-endian float32: the scales; NaN for a bucket that holds NaN or Inf
        per bucket ceil(n_b / 4) bytes: the codes sign + 1 in {0, 1, 2}, 2 bits each, least significant
        bit first.

    A NaN or Inf makes its whole bucket NaN at the receiver. Zeros stay zeros. float64 is rounded to float32
    first, beyond 3.4e38 to Inf.
    """

    name: ClassVar[str] = "terngrad"
    paper: ClassVar[str] = "Wen et al., TernGrad, NeurIPS 2017"
    reported: ClassVar[str] = "AlexNet: nothing lost, GoogLeNet: less than 2 % on average; the paper's abstract"
    kernel: ClassVar[str] = "terngrad"
    flaw: ClassVar[str] = "a scale is negative or infinite, or a code is above 2"
    width: ClassVar[int] = 2

    clip: float = number(2.5, low=0)
    bucket_size: int | None = buckets.option(None)
    share_scale: bool = boolean(False)

    @functools.cached_property
    def _agreed(self) -> dict[int, tuple[int, torch.Tensor]]:
        """The last step in which the workers agreed on scales, and these scales, by unit."""
        return {}

    @property
    def needs_memory(self) -> bool:
        return False  # rounds at random; only clipping is biased

    def law(self, shape: Sequence[int]) -> Law:
        root = math.sqrt(self.length(shape))
        # The variance of an element is |x| (m - |x|). With m in units of the norm and n - 1 elements of the
        # size a the sum is largest, in proportion, for a = m / (sqrt(n) + 1): (sqrt(n) - 1) / 2.
        omega = (root - 1) / 2
        if self.clip:
            # f is x after clipping, F = ||f|| / ||x||. An element adds |f| (m - |f|) + (|x| - |f|)^2, at most
            # m |f| + x^2 - 2 f^2. The sum of m |f| is at most F^2 (sqrt(n) + 1) / 2, as above, and, as
            # m <= clip ||x|| / sqrt(n), at most clip F. Either way over 0 <= F <= 1:
            among_few = max(1.0, omega)
            among_many = 1 + self.clip**2 / 8 if self.clip <= 4 else self.clip - 1
            omega = min(among_few, among_many)
        # A shared scale may be of any size beside this worker's elements.
        return Law(unbiased=not self.clip, omega=None if self.share_scale else omega)

    def needs_agreement(self, key: Key) -> bool:
        return self.share_scale

    def statistics(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        """Return the scales of this worker's buckets; 0 for a bucket that holds NaN or Inf."""
        kernels = backend.load(self.kernel, x.device)
        scales: torch.Tensor = kernels.scales(buffers.as_float32(x), self.length(x.shape), float(self.clip))
        return scales.nan_to_num(nan=0.0)

    def agree(self, key: Key, largest: torch.Tensor) -> None:
        self._agreed[key.unit] = key.step, largest.clone()

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        own = scales = kernels.scales(x, self.length(x.shape), float(self.clip))
        step, agreed = self._agreed.get(key.unit, (None, None))
        if self.share_scale and step == key.step and agreed is not None:
            scales = torch.where(own.isnan(), own, torch.maximum(own, agreed.to(own.device)))
        kernels.encode(x, key.mix(), self.length(x.shape), own, scales, payload)


@dataclasses.dataclass(frozen=True)
class OneBit(Bucketed):
    """The sign, and the mean of all elements that have it (Seide et al., "1-Bit Stochastic Gradient Descent",
    Interspeech 2014, section 3.1, with the threshold 0).

    The paper does so for each column of a weight matrix; here, for each bucket of `bucket_size` elements
    (null: for the unit). It draws nothing. The paper's method includes error feedback (memory=residual);
    without it the signs that were rounded away are lost.

    Payload, for B buckets:
        per bucket two little-endian float32: the mean of the elements whose sign bit is 0, and of those
        whose sign bit is 1 (-0.0 among them); 0 for none; both NaN for a bucket that holds NaN or Inf
        per bucket ceil(n_b / 8) bytes: the sign bits, least significant bit first.

    A NaN or Inf makes its whole bucket NaN at the receiver. A bucket of zeros stays zero. Sums are formed in
    float64: they do not overflow, and a mean is wrong by no more than its rounding to float32, which in float32's
    denormals is up to 7e-46 for every element. float64 is rounded to float32 first, beyond 3.4e38 to Inf.
    """

    name: ClassVar[str] = "onebit"
    paper: ClassVar[str] = "Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014"
    reported: ClassVar[str] = (
        "speech, error feedback: nothing or nearly nothing lost, a little with 160 M parameters; the paper's abstract"
    )
    kernel: ClassVar[str] = "onebit"
    flaw: ClassVar[str] = "a mean is infinite or has the other sign"
    head: ClassVar[int] = 8
    width: ClassVar[int] = 1

    bucket_size: int | None = buckets.option(2048)

    def law(self, shape: Sequence[int]) -> Law:
        # Of each sign the mean is subtracted, which takes off (sum of x)^2 / n. Elements of one sign have
        # |sum of x| >= ||x||, so at least a fraction 1 / n of their energy goes; one of n is not 0: no more.
        return Law(delta=1 / self.length(shape))

    def encode(self, kernels: ModuleType, x: torch.Tensor, key: Key, payload: torch.Tensor) -> None:
        kernels.encode(x, self.length(x.shape), payload)
