"""ATOMO on the elements of a tensor in plain torch; `compressors.sparsification.atomo` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.sums import total

_MAGNITUDE = 0x7FFFFFFF
_BLOCK = 4096
"""Elements that are drawn from one stream."""


def split_at(x: torch.Tensor, threshold: int) -> tuple[int, float, int]:
    """Count the magnitudes of `x` (n,) float32 from `threshold` on (the bits of a float32), and sum those below.

    Return the count, the sum, and the largest magnitude below `threshold`, as bits. NaN is above every threshold.
    """
    sizes = x.view(torch.int32) & _MAGNITUDE
    below = torch.where(sizes < threshold, sizes, 0)
    largest = int(below.amax()) if len(x) else 0
    return int((sizes >= threshold).sum()), float(total(below.view(torch.float32))), largest


def draw_kept(x: torch.Tensor, key: int, scale: float, threshold: int, expected: float) -> torch.Tensor:
    """Return the positions, ascending int64, of elements kept with the probability |x| / scale.

    Magnitudes of at least `threshold`, the bits of `scale`, are always kept. About `expected` elements are kept.
    """
    kept = []
    for numbers, part in rows(x, _BLOCK):
        p = (part.abs() / torch.tensor(scale, device=x.device)).nan_to_num(0.0).clamp(max=1.0) * 2.0**31
        cut = p.clamp(max=2147483520.0).long()
        certain = (part.view(torch.int32) & _MAGNITUDE) >= threshold
        kept.append((((draws(key, numbers, part.shape[1]) >> 1) < cut) | certain).flatten())
    return torch.cat(kept).nonzero().flatten() if kept else torch.zeros(0, dtype=torch.long, device=x.device)


def write_flags(flags: torch.Tensor, payload: torch.Tensor) -> None:
    """Write (k,) booleans as bits, the least significant first, into `payload` of ceil(k / 8) bytes."""
    payload.copy_(pack(flags, 1))


def read_flags(payload: torch.Tensor, count: int) -> torch.Tensor | None:
    """Return the flags that `write_flags` has written; None if a bit after the last flag is set."""
    flags = unpack(payload, 8 * len(payload), 1).bool()
    return None if flags[count:].any() else flags[:count]
