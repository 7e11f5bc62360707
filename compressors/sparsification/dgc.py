"""The selection of Deep Gradient Compression: elements above a threshold that is estimated from a sample."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from compressors.base import EXACT, Law
from compressors.kernels import backend
from compressors.kernels.uniform import uniform
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts, magnitudes
from compressors.sparsification.sparsifier import RatioSparsifier
from gradsweep.options.parameters import boolean, integer, number


def _stride(n: int, taken: int) -> int:
    """Return the step between the sampled elements: the largest odd number up to n / taken, at least one."""
    return (n // taken - 1) | 1


@dataclasses.dataclass(frozen=True)
class DGC(RatioSparsifier):
    """At most k large elements, about the k largest (Lin et al., "Deep Gradient Compression", ICLR 2018, and the
    public code of its authors). Its momentum correction is a memory, not part of the selection.

    k is the part r of the n elements that `ratio` keeps, by the rule `count` (see `counts`). Of a sample of m
    elements the ceil(m r)-th largest magnitude is the threshold. At least M = max(ceil(n sample_ratio), ceil(2 / r))
    are wanted: with `strided_sample` it is every s-th element from a random one on, through the whole tensor, where
    s is the largest odd number up to n / M (an odd step does not stay in one column of a layer), so m = floor(n / s)
    is below 2 M; else the elements at m = M random positions, some of them twice.

        fewer than `lower_bound` k reach the threshold   it is multiplied by `lower_bound`
        more than `upper_bound` k reach it               with `resample` the exact k largest are sent;
                                                         else it is multiplied by `upper_bound`
        otherwise, or after `max_adaptation_iterations`  what reaches it is sent; of more than k the k largest

    The authors' code cuts more than k down to the k first positions, which leaves out the end of every layer.
    Tensors of fewer than 3 M elements, 6000 at the defaults, send their exact k largest: every other element would
    be in the sample, which saves nothing. (The authors' code does so up to ceil(2 / r) elements.) The largest element
    is sent always, zeros never when a threshold was used.

    Payload and values: see `Sparsifier`. NaN and Inf are the largest. Up to k of them arrive; the others are not
    sent, and stay in the memory where there is one.
    """

    name: ClassVar[str] = "dgc"
    aliases: ClassVar[tuple[str, ...]] = ("deep_gradient_compression",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"dgc_fp16": {"values": "fp16", "indices": "int32"}}
    paper: ClassVar[str] = "Lin et al., Deep Gradient Compression, ICLR 2018"
    reported: ClassVar[str] = (
        "ImageNet, 0.1 % kept: ResNet-50 76.6 % (76.2 %), VGG-16-BN 74.1 % (73.4 %); "
        "README of the authors' code, against torchvision's"
    )

    sample_ratio: float = counts.ratio(0.01)
    strided_sample: bool = boolean(True)
    upper_bound: float = number(1.3, low=1)
    lower_bound: float = number(0.8, low=0, high=1, above=True, below=True)
    max_adaptation_iterations: int = integer(10, low=0, high=1000)
    resample: bool = boolean(True)

    bound_kept = RatioSparsifier.compute_k

    def count_kept(self, n: int) -> int | None:
        return self.compute_k(n) if self._sample_size(n) == n else None

    def selection_law(self, n: int) -> Law:
        k, taken = self.compute_k(n), self._sample_size(n)
        if k == n:
            return EXACT
        if taken == n:
            return Law(delta=k / n)
        # What is kept are the largest elements: as many as the sample says, unless positions came twice or the
        # threshold was raised, when it may be one only.
        certain = self.strided_sample and self.resample
        return Law(delta=min(k, self._rank(taken)) / n if certain else 1.0 / n)

    def _sample_size(self, n: int) -> int:
        """Return the number of elements in the sample; n if a sample would save no time."""
        part = counts.compute_part_kept(self.ratio, self.count)
        if part == 0 or self.compute_k(n) == n:
            return n
        wanted = max(counts.count_kept(n, self.sample_ratio, "ceil"), math.ceil(2 / part))
        if n < 3 * wanted:
            return n
        return n // _stride(n, wanted) if self.strided_sample else wanted

    def _rank(self, taken: int) -> int:
        """Return the rank of the threshold among the sample's magnitudes, counted from the largest."""
        return max(1, math.ceil(taken * counts.compute_part_kept(self.ratio, self.count)))

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        n, kernels = len(x), backend.load("selection", x.device)
        k, taken = self.compute_k(n), self._sample_size(n)
        threshold = magnitudes.INFINITY
        if taken < n:
            sample = self._sample(x, key, taken)
            threshold = max(1, magnitudes.smallest(sample[kernels.topk(sample, self._rank(taken))]))
        found: torch.Tensor | None = None
        if threshold < magnitudes.INFINITY:
            found = self._adapt(x, k, threshold)
        if found is None:
            found = kernels.topk(x, k)
        elif len(found) > k:
            found = found[kernels.topk(x[found], k)]
        return found if len(found) else magnitudes.Candidates(kernels, x).select_some(magnitudes.INFINITY)

    def _sample(self, x: torch.Tensor, key: Key, taken: int) -> torch.Tensor:
        if not self.strided_sample:
            drawn: torch.Tensor = backend.load("sampling", x.device).sample(x, key.mix(), taken)
            return drawn
        stride = _stride(len(x), taken)
        starts = len(x) - (taken - 1) * stride
        start = min(int(uniform(key.mix(), 1)[0] * starts), starts - 1)
        return x[start::stride][:taken].contiguous()

    def _adapt(self, x: torch.Tensor, k: int, threshold: int) -> torch.Tensor | None:
        """Return the positions of the elements that reach the adapted threshold; None if there are more than
        `upper_bound` k.
        """
        kernels = backend.load("selection", x.device)
        most, least = min(math.floor(self.upper_bound * k), len(x)), self.lower_bound * k
        value = magnitudes.value_of(threshold)
        found: torch.Tensor | None = kernels.collect_above(x, threshold, most)
        for _ in range(self.max_adaptation_iterations):
            if found is None and not self.resample:
                value *= self.upper_bound
            elif found is not None and len(found) < least:
                value *= self.lower_bound
            else:
                break
            threshold, tried = magnitudes.bits_of(value), threshold
            if threshold == tried:  # as low as it can be
                break
            found = kernels.collect_above(x, threshold, most)
        return found

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), *(() if self.strided_sample else ("sampling",)))
