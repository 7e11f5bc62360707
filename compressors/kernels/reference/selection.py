"""Select elements by magnitude in plain torch.

Magnitudes are compared as the bits of float32 without the sign. The integer order of these is the order of the numbers,
with Inf and then NaN above all. `side` selects by sign: 1 treats all elements but those above zero as zero, -1 all but
those below zero; 0 treats no element so.
"""

from __future__ import annotations

import torch

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


def _sizes(x: torch.Tensor, side: int) -> torch.Tensor:
    bits = x.view(torch.int32)
    sizes = bits & _MAGNITUDE
    if side:
        sizes = torch.where((bits >= 0) == (side > 0), sizes, 0)
    return sizes


def largest(x: torch.Tensor, side: int = 0) -> int:
    """Return the largest magnitude of `x` (n,) float32, as bits; 0 for an empty tensor."""
    return int(_sizes(x, side).amax()) if len(x) else 0


def is_finite(x: torch.Tensor) -> bool:
    """Tell whether `x` holds neither NaN nor Inf."""
    return largest(x) < _INFINITY


def count_above(x: torch.Tensor, threshold: int, side: int = 0) -> int:
    """Count the magnitudes that are at least `threshold`, the bits of a float32 above zero."""
    return int((_sizes(x, side) >= threshold).sum())


def collect_above(x: torch.Tensor, threshold: int, capacity: int, side: int = 0) -> torch.Tensor | None:
    """Return the positions of all magnitudes of at least `threshold`, ascending int64; None if there are more than
    `capacity`.
    """
    found = (_sizes(x, side) >= threshold).nonzero().flatten()
    return found if len(found) <= capacity else None


def topk(x: torch.Tensor, k: int, side: int = 0) -> torch.Tensor:
    """Return the positions of the `k` largest magnitudes, ascending int64; of equal ones the first are taken.

    All positions are returned if `k` is at least n. With a `side`, only elements of that sign count, so there may be
    fewer.
    """
    sizes = _sizes(x, side)
    found = sizes.sort(descending=True, stable=True).indices[: max(k, 0)]
    if side:
        found = found[sizes[found] > 0]
    return found.sort().values
