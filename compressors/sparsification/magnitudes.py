"""Compare magnitudes of float32 as integers (their bits), and select elements by a threshold.

Since integers are compared, all kernels and all processors decide alike, and NaN has a place in the order: above Inf.
"""

from __future__ import annotations

import math
from types import ModuleType

from compressors.lazy import torch

INFINITY = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF
_FRACTION_BITS = 23
_ROOM = 64
"""At most one in so many elements is stored: positions and values of 12 bytes, 5 % of the tensor."""
_SMALL = 1024
_SAMPLE = 64, 256
"""Number and length of the runs of elements by which to guess whether few elements reach a threshold."""
_LEAST_EXPONENT = -125  # of the smallest normal number, 0.5 * 2^-125


def bits_of(value: float) -> int:
    """Return the bits of the smallest float32 above zero that is at least `value`; those of Inf for too large values.

    A threshold that is rounded up compares with every float32 exactly as `value` itself would.
    """
    if value <= 0.0:
        return 1
    if math.isinf(value):
        return INFINITY
    exponent = max(math.frexp(value)[1], _LEAST_EXPONENT)
    if exponent > 128:
        return INFINITY
    fraction = math.ceil(math.ldexp(value, _FRACTION_BITS + 1 - exponent))
    return max(1, fraction + ((exponent - _LEAST_EXPONENT) << _FRACTION_BITS))


def value_of(bits: int) -> float:
    """Return the number, or Inf, with these bits of a float32 without a sign."""
    if bits >= INFINITY:
        return math.inf if bits == INFINITY else math.nan
    exponent = max(bits >> _FRACTION_BITS, 1)
    return math.ldexp(bits - ((exponent - 1) << _FRACTION_BITS), exponent - 1 + _LEAST_EXPONENT - _FRACTION_BITS - 1)


def smallest(x: torch.Tensor) -> int:
    """Return the smallest magnitude of a tensor that is not empty, as bits."""
    return int((x.view(torch.int32) & _MAGNITUDE).amin())


class Candidates:
    """Counts and collects elements that reach a threshold, for several thresholds, with few passes over the tensor.

    The elements that reach a threshold are kept if they are few, and the answers for all higher thresholds come from
    them. `kernels` is the module `selection`; thresholds are bits, above zero; `side` has the meaning that it has in
    the kernels.
    """

    def __init__(self, kernels: ModuleType, x: torch.Tensor, side: int = 0) -> None:
        self._kernels, self._x, self._side = kernels, x, side
        self._least: int | None = None
        self._found, self._values = x, x
        runs, length = _SAMPLE
        self._sample = x if len(x) < _ROOM * runs * length else x[: len(x) // runs * runs].view(runs, -1)[:, :length]
        self._sample = self._sample.reshape(-1)

    def above(self, threshold: int) -> torch.Tensor | None:
        """Return the positions of all elements that reach `threshold`; None if there are too many to keep in memory."""
        self._narrow(threshold)
        if self._least is None or threshold < self._least:
            return None
        if threshold == self._least:
            return self._found
        count = self._kernels.count_above(self._values, threshold, self._side)
        return self._found[self._kernels.collect_above(self._values, threshold, count, self._side)]

    def count(self, threshold: int) -> int:
        """Return how many magnitudes reach `threshold`."""
        self._narrow(threshold)
        known = self._least is not None and threshold >= self._least
        return int(self._kernels.count_above(self._values if known else self._x, threshold, self._side))

    def all_above(self, threshold: int) -> torch.Tensor:
        """Return the positions of all elements that reach `threshold`, however many there are."""
        found = self.above(threshold)
        if found is None:
            count = self._kernels.count_above(self._x, threshold, self._side)
            found = self._kernels.collect_above(self._x, threshold, count, self._side)
        return found

    def select_some(self, threshold: int) -> torch.Tensor:
        """Return `all_above`; if no element reaches `threshold`, the largest element, so that every step has an effect.

        The result is empty if all elements are zero.
        """
        found = self.all_above(threshold)
        if len(found) or not self._kernels.largest(self._x, self._side):
            return found
        largest: torch.Tensor = self._kernels.topk(self._x, 1, self._side)
        return largest

    def _narrow(self, threshold: int) -> None:
        if self._least is not None and threshold >= self._least:
            return
        room = min(max(len(self._x) // _ROOM, _SMALL), len(self._x))
        if self._kernels.count_above(self._sample, threshold, self._side) * len(self._x) > room * len(self._sample):
            return  # a guess that saves a pass, and decides nothing else
        found = self._kernels.collect_above(self._x, threshold, room, self._side)
        if found is not None:
            self._least, self._found, self._values = threshold, found, self._x[found]
