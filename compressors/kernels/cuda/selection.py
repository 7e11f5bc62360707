"""Select elements by magnitude in Triton; `reference.selection` says what is selected.

The k-th largest magnitude is found digit by digit, four bits at a time. A pass over the tensor counts the sixteen
values of the next digit among the magnitudes that agree with the digits known so far. From these counts, every program
of the next pass computes the digit of the k-th largest. So there are eight passes, no sorting and no wait for the host.
Positions are then collected in order: counts by tile, their running sum, and one more pass that writes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch
from compressors.kernels.reference import selection as plain

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = 0x7F800000
_BITS = 32
_DIGIT = 4
_BLOCK = 512
_LOOPS = 16
_TILE = 2048
_SMALL = 1 << 15
"""Up to so many elements sorting needs less time than starting all these kernels."""


@triton.jit
def _sizes(x, index, count, SIDE: tl.constexpr) -> tl.tensor:
    """Return magnitudes as bits: 0 for elements without the selected sign, -1 after the end of the tensor."""
    bits = tl.load(x + index, mask=index < count, other=0.0).to(tl.int32, bitcast=True)
    sizes = bits & _MAGNITUDE
    if SIDE > 0:
        sizes = tl.where(bits >= 0, sizes, 0)
    if SIDE < 0:
        sizes = tl.where(bits >= 0, 0, sizes)
    return tl.where(index < count, sizes, -1)


@triton.jit(do_not_specialize=["count"])
def _largest(x, found, count, SIDE: tl.constexpr, BLOCK: tl.constexpr, LOOPS: tl.constexpr) -> None:
    count = count.to(tl.int64)
    index = tl.program_id(0).to(tl.int64) * (BLOCK * LOOPS) + tl.arange(0, BLOCK)
    most = tl.zeros((BLOCK,), tl.int32)
    for _ in range(LOOPS):
        most = tl.maximum(most, _sizes(x, index, count, SIDE))
        index += BLOCK
    tl.atomic_max(found, tl.max(most, axis=0), sem="relaxed")


@triton.jit
def _next_digit(counts, known, wanted) -> tl.tensor:
    """Return `known` extended by the next digit of the magnitude of rank `wanted`, and its rank among those with that
    digit.

    Ranks count from 1, the largest, among the magnitudes that begin with `known`; `counts` (16,) has the number of
    these magnitudes by next digit.
    """
    digit = tl.arange(0, 16)
    below = tl.cumsum(counts, axis=0)
    above = tl.sum(counts, axis=0) - below  # with a larger digit
    here = (above < wanted) & (wanted <= above + counts)
    chosen = tl.sum(tl.where(here, digit, 0), axis=0)
    return known * 16 + chosen, wanted - tl.sum(tl.where(here, above, 0), axis=0)


@triton.jit
def _read_known_digits(counts, wanted, STEP: tl.constexpr) -> tl.tensor:
    """Return the digits that the passes before STEP have determined, as a number, and the rank among magnitudes with
    them.
    """
    known = tl.zeros((), tl.int64)
    for step in tl.static_range(STEP):
        known, wanted = _next_digit(tl.load(counts + 16 * step + tl.arange(0, 16)), known, wanted)
    return known, wanted


@triton.jit(do_not_specialize=["count", "k"])
def _count_digits(
    x, counts, count, k, SIDE: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, LOOPS: tl.constexpr
) -> None:
    """Count the values of the next digit, and add the counts to row STEP of `counts` (8, 16) int64."""
    count = count.to(tl.int64)
    known, _ = _read_known_digits(counts, k.to(tl.int64), STEP)
    shift: tl.constexpr = 28 - 4 * STEP
    index = tl.program_id(0).to(tl.int64) * (BLOCK * LOOPS) + tl.arange(0, BLOCK)
    digit = tl.arange(0, 16)
    seen = tl.zeros((16, BLOCK), tl.int32)
    for _ in range(LOOPS):
        sizes = _sizes(x, index, count, SIDE).to(tl.int64)
        matching = tl.where((sizes >= 0) & ((sizes >> (shift + 4)) == known), (sizes >> shift) & 15, 16).to(tl.int32)
        seen += (matching[None, :] == digit[:, None]).to(tl.int32)
        index += BLOCK
    found = tl.sum(seen, axis=1)
    tl.atomic_add(counts + 16 * STEP + digit, found.to(tl.int64), mask=found > 0, sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def _finish(counts, limit, k, SIDE: tl.constexpr) -> None:
    """Write the k-th largest magnitude, and how many of the k largest equal it, to `limit`."""
    known, wanted = _read_known_digits(counts, k.to(tl.int64), 8)
    if SIDE != 0:
        wanted = tl.where(known == 0, 0, wanted)  # zeros are on no side
    tl.store(limit, known)
    tl.store(limit + 1, wanted)


@triton.jit(do_not_specialize=["count"])
def _count_kept(x, limit, larger, equal, count, SIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Count the magnitudes of a tile that lie above `limit[0]`, and those that equal it."""
    tile = tl.program_id(0).to(tl.int64)
    sizes = _sizes(x, tile * BLOCK + tl.arange(0, BLOCK), count.to(tl.int64), SIDE).to(tl.int64)
    threshold = tl.load(limit)
    tl.store(larger + tile, tl.sum((sizes > threshold).to(tl.int32), axis=0).to(tl.int64))
    tl.store(equal + tile, tl.sum((sizes == threshold).to(tl.int32), axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["count"])
def _collect(x, limit, larger, equal, kept, count, SIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Write the positions of the magnitudes above `limit[0]`, and of the first `limit[1]` that equal it.

    `larger` and `equal` are the running sums of the tiles' counts, each including its own tile.
    """
    tile = tl.program_id(0).to(tl.int64)
    index = tile * BLOCK + tl.arange(0, BLOCK)
    sizes = _sizes(x, index, count.to(tl.int64), SIDE).to(tl.int64)
    threshold = tl.load(limit)
    taken = tl.load(limit + 1)
    above = (sizes > threshold).to(tl.int32)
    same = (sizes == threshold).to(tl.int32)
    larger_before = tl.load(larger + tile) - tl.sum(above, axis=0) + tl.cumsum(above, axis=0) - above
    equal_before = tl.load(equal + tile) - tl.sum(same, axis=0) + tl.cumsum(same, axis=0) - same
    mask = (above > 0) | ((same > 0) & (equal_before < taken))
    tl.store(kept + larger_before + tl.minimum(equal_before, taken), index, mask=mask)


def _programs(x: torch.Tensor) -> int:
    return -(-len(x) // (_BLOCK * _LOOPS))


def largest(x: torch.Tensor, side: int = 0) -> int:
    found = torch.zeros(1, dtype=torch.int32, device=x.device)
    launch(_largest, _programs(x), x, found, len(x), SIDE=side, BLOCK=_BLOCK, LOOPS=_LOOPS)
    return int(found.item())


def is_finite(x: torch.Tensor) -> bool:
    return largest(x) < _INFINITY


def _tile_counts(x: torch.Tensor, limit: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the running sums over tiles of the numbers of magnitudes above the limit, and of those equal to it."""
    tiles = -(-len(x) // _TILE)
    counts = torch.zeros(2, tiles, dtype=torch.int64, device=x.device)
    launch(_count_kept, tiles, x, limit, counts[0], counts[1], len(x), SIDE=side, BLOCK=_TILE)
    running = counts.cumsum(1)
    return running[0], running[1]


def _collect_kept(
    x: torch.Tensor, limit: torch.Tensor, running: tuple[torch.Tensor, torch.Tensor], total: int, side: int
) -> torch.Tensor:
    kept = torch.empty(total, dtype=torch.int64, device=x.device)
    launch(_collect, -(-len(x) // _TILE), x, limit, *running, kept, len(x), SIDE=side, BLOCK=_TILE)
    return kept


def _make_limit(x: torch.Tensor, threshold: int) -> torch.Tensor:
    return torch.tensor([threshold - 1, 0], dtype=torch.int64, device=x.device)


def count_above(x: torch.Tensor, threshold: int, side: int = 0) -> int:
    if not len(x):
        return 0
    larger, _ = _tile_counts(x, _make_limit(x, threshold), side)
    return int(larger[-1])


def collect_above(x: torch.Tensor, threshold: int, capacity: int, side: int = 0) -> torch.Tensor | None:
    if not len(x):
        return torch.empty(0, dtype=torch.int64, device=x.device)
    limit = _make_limit(x, threshold)
    running = _tile_counts(x, limit, side)
    total = int(running[0][-1])
    return _collect_kept(x, limit, running, total, side) if total <= capacity else None


def topk(x: torch.Tensor, k: int, side: int = 0) -> torch.Tensor:
    if len(x) <= _SMALL:
        return plain.topk(x, k, side)
    k = min(max(k, 0), len(x))
    if not k:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    if k == len(x) and not side:
        return torch.arange(k, device=x.device)
    counts = torch.zeros(_BITS // _DIGIT, 16, dtype=torch.int64, device=x.device)
    for step in range(len(counts)):
        launch(_count_digits, _programs(x), x, counts, len(x), k, SIDE=side, STEP=step, BLOCK=_BLOCK, LOOPS=_LOOPS)
    limit = torch.empty(2, dtype=torch.int64, device=x.device)
    launch(_finish, 1, counts, limit, k, SIDE=side)
    running = _tile_counts(x, limit, side)
    total = int(running[0][-1] + torch.minimum(running[1][-1], limit[1])) if side else k
    return _collect_kept(x, limit, running, total, side)
