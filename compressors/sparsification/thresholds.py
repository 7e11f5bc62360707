"""Sparsifiers that send all elements above a threshold: a fixed one, half of the maximum, a normal quantile."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import ClassVar

from compressors.base import Law
from compressors.kernels import backend
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts, magnitudes
from compressors.sparsification.sparsifier import RatioSparsifier, Sparsifier
from gradsweep.options.parameters import integer, number


@dataclasses.dataclass(frozen=True)
class ThresholdV(Sparsifier):
    """The elements with |x| >= `threshold` (Dutta et al., "On the discrepancy between the theoretical analysis and
    practical implementations of compressed communication", AAAI 2020; Sahu et al., "Rethinking gradient sparsification
    as total error minimization", NeurIPS 2021, which calls it hard-threshold).

    The number of elements sent depends on the gradient: none if all are below the threshold, all if none is. The
    error is bounded by the threshold alone, not by a share of the gradient.

    Payload and values: see `Sparsifier`. NaN and Inf are above every threshold. The comparison is that of real
    numbers: the threshold is not rounded.
    """

    name: ClassVar[str] = "thresholdv"
    aliases: ClassVar[tuple[str, ...]] = ("hard_threshold", "threshold")
    paper: ClassVar[str] = "Dutta et al., AAAI 2020; Sahu et al., NeurIPS 2021"

    threshold: float = number(0.001, low=0, above=True)

    def selection_law(self, n: int) -> Law:
        return Law(kappa=math.sqrt(n) * self.threshold)  # each of the n errors is below the threshold

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        candidates = magnitudes.Candidates(backend.load("selection", x.device), x)
        return candidates.all_above(magnitudes.bits_of(self.threshold))


@dataclasses.dataclass(frozen=True)
class AdaptiveThreshold(Sparsifier):
    """The elements with |2 x| >= max |x|: the "adaptive threshold" of the experiments of Dutta et al., "On the
    discrepancy between the theoretical analysis and practical implementations of compressed communication", AAAI 2020.

    There is no threshold to choose, and no bound on the number of elements sent. A tensor of zeros sends nothing.

    Payload and values: see `Sparsifier`. Where there are NaN or Inf, those are what is sent, all of them.
    """

    name: ClassVar[str] = "adaptive_threshold"
    paper: ClassVar[str] = "Dutta et al., AAAI 2020"

    def selection_law(self, n: int) -> Law:
        # With the largest magnitude m: what is dropped has less than (m / 2)^2 each, what is kept at least that, and
        # one element has m^2. The dropped part is largest, (n - 1) / (n + 3), when that one is all that is kept.
        return Law(delta=min(1.0, 4.0 / (n + 3.0)))

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        kernels = backend.load("selection", x.device)
        largest = kernels.largest(x, side)
        half = magnitudes.INFINITY
        if largest < magnitudes.INFINITY:
            half = magnitudes.bits_of(magnitudes.value_of(largest) / 2.0)
        return magnitudes.Candidates(kernels, x, side).all_above(half)


@dataclasses.dataclass(frozen=True)
class GaussianK(RatioSparsifier):
    """About k elements, those above a quantile of the normal distribution (Shi et al., "Understanding top-k
    sparsification in distributed deep learning", 2019, Gaussian_k).

    With the mean m and the standard deviation s of all n elements, the threshold is |m| + z s, where z is what a
    normal number exceeds in size with the probability k / n. The paper adds m with its sign, so that there x and -x
    have different thresholds; for m = 0 both rules are the same. Real gradients are not normal, so the elements above
    are counted: fewer than 2/3 k halve the threshold, more than 4/3 k multiply it by 1.5, `corrections` times at
    most. All that reach it in the end are sent, or the largest one if none does; nothing is cut off.

    k is `ratio` of n by the rule `count` (see `counts`). Where k = n all are sent.

    Payload and values: see `Sparsifier`. Where there are NaN or Inf nothing can be estimated, and exactly the k
    largest are sent, NaN before Inf before numbers.
    """

    name: ClassVar[str] = "gaussiank"
    aliases: ClassVar[tuple[str, ...]] = ("gaussian_k",)
    paper: ClassVar[str] = "Shi et al., Understanding top-k sparsification, 2019"

    count: str = counts.rule("at_least_one_floor")
    corrections: int = integer(3, low=0, high=100)

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        n, kernels = len(x), backend.load("selection", x.device)
        k = self.compute_k(n)
        plain, _, square = backend.load("sums", x.device).moments(x)
        if k == n or not math.isfinite(square):
            largest: torch.Tensor = kernels.topk(x, k)
            return largest
        deviation = math.sqrt(max(square - plain * plain / n, 0.0) / max(n - 1, 1))
        value = abs(plain) / n - statistics.NormalDist().inv_cdf(k / n / 2.0) * deviation
        candidates = magnitudes.Candidates(kernels, x)
        for _ in range(self.corrections):
            kept = candidates.count(magnitudes.bits_of(value))
            if 3 * kept < 2 * k:
                value *= 0.5
            elif 3 * kept > 4 * k:
                value *= 1.5
            else:
                break
        return candidates.select_some(magnitudes.bits_of(value))

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), "sums")
