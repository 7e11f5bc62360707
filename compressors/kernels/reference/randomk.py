"""Draw random subsets as a function of a key, in plain torch.

Subset of k of n: numbers are drawn uniformly from [0, n), one after the other, and the first k different ones are the
subset, so that all subsets are equally likely. If k > n / 2, the n - k elements that are left out are drawn so. Draw j
belongs to chunk j div CHUNK and is its element i = j mod CHUNK: with the 32-bit draws h and l at place i of the streams
2 chunk and 2 chunk + 1, U = 2^32 h + l, it is floor(U n / 2^64) where n < 2^31. For larger n it is floor(floor(U /
2^11) / 2^53 n) in float64, at most n - 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from compressors.kernels.reference.primitives.streams import draws

CHUNK = 1024


def _numbers(key: int, n: int, chunks: int, device: torch.device) -> torch.Tensor:
    """Return the random numbers of the first `chunks` chunks."""
    halves = draws(key, torch.arange(2 * chunks, device=device), CHUNK).view(chunks, 2, CHUNK)
    high, low = halves[:, 0].flatten(), halves[:, 1].flatten()
    if n < 2**31:
        return (high * n + ((low * n) >> 32)) >> 32
    u = (high << 21) | (low >> 11)
    return (u.double() * 2.0**-53 * n).long().clamp(max=n - 1)


def subset(key: int, n: int, k: int, device: torch.device) -> torch.Tensor:
    """Return `k` <= n different numbers below n, ascending: int32 if n < 2^31, else int64."""
    return choose_first(functools.partial(_numbers, key, n), n, k, device)


def choose_first(
    draw: Callable[[int, torch.device], torch.Tensor], n: int, k: int, device: torch.device
) -> torch.Tensor:
    """Return the subset that `subset` defines, from random numbers that `draw` returns for a number of chunks."""
    wanted = min(k, n - k)
    dtype = torch.int32 if n < 2**31 else torch.int64
    # wanted different numbers take n log(n / (n - wanted)) draws on average, with a deviation below this root.
    chunks = math.ceil((-n * math.log1p(-wanted / n) + 6 * math.sqrt(wanted)) / CHUNK) if wanted else 0
    chosen = torch.empty(0, dtype=dtype, device=device)
    while len(chosen) < wanted:
        ordered, places = draw(chunks, device).to(dtype).sort(stable=True)
        is_first = ordered.diff(prepend=ordered.new_full((1,), -1)) > 0
        different = torch.empty_like(is_first)
        different[places] = is_first
        rank = different.cumsum(0)[places]  # in the order of the draws
        if int(rank.max()) >= wanted:
            chosen = _take(ordered, is_first & (rank <= wanted), wanted)
        chunks *= 2
    if wanted == k:
        return chosen
    left = torch.ones(n, dtype=torch.bool, device=device)
    left[chosen.long()] = False
    return left.nonzero().flatten().to(dtype)


def _take(x: torch.Tensor, chosen: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count` elements that are chosen; other than a mask, this does not wait for the device."""
    taken = x.new_empty(count + 1)
    taken[torch.where(chosen, chosen.cumsum(0) - 1, count)] = x
    return taken[:count]


def take(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> bool:
    """Compute values = x[indices] for ascending `indices`; return whether all of `x` (n,) float32 is finite."""
    values.copy_(x[indices])
    return bool(x.isfinite().all())
