"""RedSync's selections: top-k after trimming, and a searched threshold that is used again."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from compressors.kernels import backend
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts, magnitudes
from compressors.sparsification.sparsifier import RatioSparsifier
from compressors.sparsification.topk import TopK
from compressors.unit_state import Stateful
from gradsweep.options.parameters import choice, integer, number

_STEPS = 10
"""Thresholds that the trimming can try: mean + p (max - mean) with p = 0.9, 0.8, ... 0."""


def _mean_and_largest(x: torch.Tensor, side: int) -> tuple[float, float]:
    """Return the mean and the maximum of the magnitudes of `x`; NaN or Inf if `x` holds one.

    With a side, elements of the other sign count as zero.
    """
    plain, absolute, _ = backend.load("sums", x.device).moments(x)
    largest = magnitudes.value_of(backend.load("selection", x.device).largest(x, side))
    total = (absolute + side * plain) / 2.0 if side else absolute
    return total / len(x), largest if math.isfinite(absolute) else math.nan


@dataclasses.dataclass(frozen=True)
class RedSyncTrimmed(TopK):
    """The k largest elements, found among those above a threshold (Fang et al., "RedSync", JPDC 2019, trimmed
    top-k selection).

    With the mean and the maximum of |x|, the threshold is mean + p (max - mean), where p is the largest of 0.9,
    0.8, ... 0 that lets at least k elements through (found by bisection: the lower, the more); the k largest of
    these are sent. They are the k largest of all, so the trimming decides what the selection costs, not what
    it selects; where a large part of the tensor gets through, or fewer than k for every p, the k largest are
    taken from the whole tensor.

    k is `ratio` of n by the rule `count` (see `counts`). Of equal magnitudes the lower positions are kept. With
    `values: mean`, RedSync's same-sign quantisation, the same is done to the elements of the step's sign.

    Payload and values: see `Sparsifier`. Where there are NaN or Inf the k largest are taken from the whole tensor,
    NaN before Inf before numbers.
    """

    name: ClassVar[str] = "redsync_trimmed"
    aliases: ClassVar[tuple[str, ...]] = ("trimmed_topk",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    paper: ClassVar[str] = "Fang et al., RedSync, JPDC 2019"

    ratio: float = counts.ratio(0.001)
    count: str = counts.rule("floor_plus_one")

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        k = self.compute_k(len(x))
        survivors = self._survivors(x, k, side)
        if survivors is None:
            return super().select(x, key, side)
        return survivors[backend.load("selection", x.device).topk(x[survivors], k)]

    def _survivors(self, x: torch.Tensor, k: int, side: int) -> torch.Tensor | None:
        """Return the positions of the elements that reach the highest threshold with at least k of them.

        None if there is no such threshold, or too many elements reach it.
        """
        mean, largest = _mean_and_largest(x, side)
        if not largest > 0.0:
            return None
        candidates = magnitudes.Candidates(backend.load("selection", x.device), x, side)
        best, low, high = None, 0, _STEPS
        while low < high:
            middle = (low + high) // 2
            p = (_STEPS - 1 - middle) / _STEPS
            threshold = magnitudes.bits_of(mean + p * (largest - mean))
            if candidates.count(threshold) >= k:
                best, high = threshold, middle
            else:
                low = middle + 1
        return None if best is None else candidates.above(best)

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), "sums")


_DRIFT = 2
"""A threshold that gives so many times more or fewer elements than it should is searched for again."""
_SIDES = {0: "both", 1: "above", -1: "below"}


@dataclasses.dataclass(frozen=True)
class RedSyncThreshold(RatioSparsifier, Stateful):
    """The elements above a threshold that is searched for and then used for some steps (Fang et al., "RedSync",
    JPDC 2019, threshold binary search selection).

    The threshold is mean + p (max - mean) of |x|. The interval [0, 1] of p is halved: its middle is tried, and
    becomes the lower end where too many elements reach it, the upper end where too few do, until the number is
    accepted, `double`: k <= number < 2k, or `half`: k/2 < number < 3k/2, or until the interval is no longer than
    `precision`. All elements that reach the last threshold tried are sent, or the largest one if none does.

    A threshold is used in `reuse` steps, the one of its search included. The paper does so whatever number of
    elements it gives there; here it is searched for again before that when the gradient has outgrown it, as under
    error feedback that would send more and more, up to everything: when more than twice the accepted number reach
    it, or fewer than half. (Where the search ended outside of what is accepted, because of `precision`, these are
    twice and half of what it found.) State per unit: the step of the last search, the bits of its threshold as
    float32, rounded up, and how many elements reached it.

    k is `ratio` of n by the rule `count` (see `counts`). With `values: mean`, RedSync's same-sign quantisation, the
    search is among the elements of the step's sign, and each sign has its own threshold.

    Payload and values: see `Sparsifier`. Where there are NaN or Inf, and no threshold that can be used again, exactly
    the k largest are sent, NaN before Inf before numbers; with one, all of them are.
    """

    name: ClassVar[str] = "redsync_threshold"
    aliases: ClassVar[tuple[str, ...]] = ("threshold_binary_search",)
    paper: ClassVar[str] = "Fang et al., RedSync, JPDC 2019"
    remembers: ClassVar[tuple[str, ...]] = tuple(_SIDES.values())
    optional: ClassVar[tuple[str, ...]] = remembers

    count: str = counts.rule("floor_plus_one")
    accept: str = choice("double", "double", "half")
    precision: float = number(0.1, low=1e-6, high=1)
    reuse: int = integer(10, low=1)

    def count_kept(self, n: int) -> None:
        return None  # also where k = n: what is below the threshold is not sent

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        kernels, name = backend.load("selection", x.device), _SIDES[side]
        candidates = magnitudes.Candidates(kernels, x, side)
        k = self.compute_k(len(x))
        state = self.unit_tensors.setdefault(key.unit, {})
        if name in state:
            step, threshold, number = state[name].tolist()
            if 0 <= key.step - step < self.reuse and self._still_gives(number, candidates.count(threshold), k):
                return candidates.all_above(threshold)
        mean, largest = _mean_and_largest(x, side)
        if not largest > 0.0:  # a NaN, or nothing but zeros on this side
            exact: torch.Tensor = kernels.topk(x, k if math.isnan(largest) else 0, side)
            return exact
        threshold = self._search(candidates, mean, largest, k)
        found = candidates.select_some(threshold)
        state[name] = torch.tensor([key.step, threshold, len(found)])
        return found

    def _accept(self, k: int) -> tuple[int, int]:
        """Return the range of accepted numbers of elements: its smallest number, and the number after its largest."""
        return (k, 2 * k) if self.accept == "double" else (k // 2 + 1, -(-3 * k // 2))

    def _still_gives(self, before: int, now: int, k: int) -> bool:
        """Tell whether a threshold can be used again: `before` elements reached it at its search, and `now` do."""
        fewest, most = self._accept(k)
        return now > 0 and min(before, fewest) <= _DRIFT * now and now <= _DRIFT * max(before, most)

    def _search(self, candidates: magnitudes.Candidates, mean: float, largest: float, k: int) -> int:
        """Search for a threshold that an accepted number of elements reach; return the last one tried, as bits."""
        fewest, most = self._accept(k)
        low, high = 0.0, 1.0
        while True:
            p = (low + high) / 2.0
            threshold = magnitudes.bits_of(mean + p * (largest - mean))
            kept = candidates.count(threshold)
            if kept < fewest:
                high = p
            else:
                low = p
            if fewest <= kept < most or high - low <= self.precision:
                return threshold

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), "sums")
