"""Select elements by magnitude in Triton; `reference.selection` says what is selected.

The k-th largest magnitude is found digit by digit, eight bits at a time. A pass over the magnitudes counts the values
of the next digit among those that agree with the digits known so far. Every program of the next pass computes the digit
of the k-th largest from these counts.

Of a large tensor, these passes read candidates only. A sample gives a bound above which a little more than k magnitudes
should lie; one pass over the tensor collects those. If the bound was wrong (fewer than k candidates, or too many), the
kernels read the whole tensor instead. They see on the device which case it is, so nothing waits for the host, and the
result is exact in both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch
from compressors.kernels.reference import selection as plain

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = 0x7F800000
_BINS = tl.constexpr(256)
_DIGITS = 4
_BLOCK = 1024
_LOOPS = 8
_TILE = 2048
_PIECE = 256
_SAMPLES = 8192
_MOST_PROGRAMS = 1056
"""Programs that go over the magnitudes together: eight for each multiprocessor of a large GPU."""
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


@triton.jit(do_not_specialize=["count", "step", "rank"])
def _find_bound(x, bound, count, step, rank, SIDE: tl.constexpr, SAMPLES: tl.constexpr) -> None:
    """Write to `bound` the magnitude of this rank, the largest first, among every step-th element, without its lowest
    sixteen bits.
    """
    sizes = _sizes(x, tl.arange(0, SAMPLES) * step.to(tl.int64), count.to(tl.int64), SIDE)
    found = tl.zeros((), tl.int32)
    for bit in tl.static_range(15):
        longer = found | (1 << (30 - bit))
        found = tl.where(tl.sum((sizes >= longer).to(tl.int32), axis=0) >= rank, longer, found)
    tl.store(bound, found)


@triton.jit
def _running_sums(x) -> tl.tensor:
    """Return what `tl.cumsum` returns for x (n,), with a quarter of its exchanges between threads."""
    rows = tl.reshape(x, (x.shape[0] // 16, 16))
    sums = tl.sum(rows, axis=1)
    before = tl.cumsum(sums, axis=0) - sums
    return tl.reshape(before[:, None] + tl.cumsum(rows, axis=1), (x.shape[0],))


@triton.jit(do_not_specialize=["count", "capacity"])
def _find_candidates(
    x,
    bound,
    total,
    candidates,
    pieces,
    count,
    capacity,
    SIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Collect the magnitudes from the bound on, tile by tile in any order; `total` (1,) int64 gets their number.

    `candidates` (2, capacity) int32 gets places in the tile and magnitudes, `pieces` (2, tiles) int64 the begin and the
    number of each tile's candidates.
    """
    tile = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    count = count.to(tl.int64)
    if ALIGNED:
        count = tl.multiple_of(count, 16)
    sizes = _sizes(x, tile * BLOCK + place, count, SIDE)
    chosen = (sizes >= tl.load(bound)).to(tl.int32)
    number = tl.sum(chosen, axis=0)
    begin = tl.atomic_add(total, number.to(tl.int64), sem="relaxed")
    room = tl.minimum(tl.maximum(capacity.to(tl.int64) - begin, 0), BLOCK).to(tl.int32)
    slot = _running_sums(chosen) - chosen  # of 32 bits, as everything that is computed for each element
    mask = (chosen > 0) & (slot < room)
    tl.store(candidates + begin + slot, place, mask=mask)
    tl.store(candidates + capacity.to(tl.int64) + begin + slot, sizes, mask=mask)
    tl.store(pieces + tile, begin)
    tl.store(pieces + tl.num_programs(0).to(tl.int64) + tile, number.to(tl.int64))


@triton.jit
def _suffice(total, k, capacity) -> tl.tensor:
    """Return whether the candidates hold the k largest magnitudes, and none was left out."""
    found = tl.load(total)
    return (found >= k) & (found <= capacity)


@triton.jit
def _next_digit(counts, known, wanted) -> tl.tensor:
    """Return `known` extended by the next digit of the magnitude of rank `wanted`, and its rank among those with that
    digit.

    Ranks count from 1, the largest, among the magnitudes that begin with `known`; `counts` (_BINS,) has the number of
    these magnitudes by next digit.
    """
    digit = tl.arange(0, _BINS)
    below = tl.cumsum(counts, axis=0)
    above = tl.sum(counts, axis=0) - below  # with a larger digit
    here = (above < wanted) & (wanted <= above + counts)
    chosen = tl.sum(tl.where(here, digit, 0), axis=0)
    return known * _BINS + chosen, wanted - tl.sum(tl.where(here, above, 0), axis=0)


@triton.jit
def _read_known_digits(counts, wanted, STEP: tl.constexpr) -> tl.tensor:
    """Return the digits that the passes before STEP have determined, as a number, and the rank among magnitudes with
    them.
    """
    known = tl.zeros((), tl.int64)
    for step in tl.static_range(STEP):
        known, wanted = _next_digit(tl.load(counts + _BINS * step + tl.arange(0, _BINS)), known, wanted)
    return known, wanted


@triton.jit(do_not_specialize=["count", "k", "capacity"])
def _count_digits(
    x,
    total,
    candidates,
    counts,
    count,
    k,
    capacity,
    SIDE: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Count the values of the next digit, and add the counts to row STEP of `counts` (4, _BINS) int64."""
    k = k.to(tl.int64)
    capacity = capacity.to(tl.int64)
    suffices = _suffice(total, k, capacity)
    end = tl.where(suffices, tl.load(total), count.to(tl.int64))
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    if begin < end:
        known, _ = _read_known_digits(counts, k, STEP)
        shift: tl.constexpr = 24 - 8 * STEP
        seen = tl.zeros((_BINS,), tl.int32)
        for first in range(begin, end, tl.num_programs(0).to(tl.int64) * BLOCK):
            index = first + tl.arange(0, BLOCK)
            if suffices:
                sizes = tl.load(candidates + capacity + index, mask=index < end, other=-1)
            else:
                sizes = _sizes(x, index, end, SIDE)
            matching = (sizes >= 0) & ((sizes.to(tl.int64) >> (shift + 8)) == known)
            seen += tl.histogram((sizes >> shift) & (_BINS - 1), _BINS, mask=matching)
        tl.atomic_add(counts + _BINS * STEP + tl.arange(0, _BINS), seen.to(tl.int64), mask=seen > 0, sem="relaxed")


@triton.jit(do_not_specialize=["k"])
def _finish(counts, limit, k, SIDE: tl.constexpr) -> None:
    """Write the k-th largest magnitude, and how many of the k largest equal it, to `limit`."""
    known, wanted = _read_known_digits(counts, k.to(tl.int64), 4)
    if SIDE != 0:
        wanted = tl.where(known == 0, 0, wanted)  # zeros are on no side
    tl.store(limit, known)
    tl.store(limit + 1, wanted)


@triton.jit
def _tile_end(pieces, suffices, BLOCK: tl.constexpr) -> tl.tensor:
    """Return the begin of this tile's candidates and their number, or its size if it is passed over as a whole."""
    tile = tl.program_id(0).to(tl.int64)
    begin, number = tl.zeros((), tl.int64), tl.zeros((), tl.int64) + BLOCK
    if suffices:
        begin = tl.load(pieces + tile)
        number = tl.load(pieces + tl.num_programs(0).to(tl.int64) + tile)
    return begin, number


@triton.jit
def _read_piece(
    x,
    candidates,
    begin,
    done,
    number,
    suffices,
    count,
    capacity,
    SIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
) -> tl.tensor:
    """Return the positions and the magnitudes, -1 for none, of the next PIECE elements or candidates of a tile."""
    tile = tl.program_id(0).to(tl.int64)
    inside = done + tl.arange(0, PIECE)
    index = tile * BLOCK + inside
    if suffices:
        slot = begin + inside
        place = tl.load(candidates + slot, mask=inside < number, other=0)
        index = tile * BLOCK + place
        sizes = tl.load(candidates + capacity + slot, mask=inside < number, other=-1)
    else:
        sizes = _sizes(x, index, count, SIDE)
    return index, sizes


@triton.jit(do_not_specialize=["count", "k", "capacity"])
def _count_kept(
    x,
    total,
    candidates,
    pieces,
    limit,
    kept,
    count,
    k,
    capacity,
    SIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
) -> None:
    """Count the magnitudes of a tile that lie above `limit[0]`, and those that equal it: `kept` (2, tiles) int64."""
    count = count.to(tl.int64)
    capacity = capacity.to(tl.int64)
    suffices = _suffice(total, k, capacity)
    begin, number = _tile_end(pieces, suffices, BLOCK)
    threshold = tl.load(limit).to(tl.int32)
    larger = tl.zeros((), tl.int32)
    equal = tl.zeros((), tl.int32)
    for done in range(0, number, PIECE):
        _, sizes = _read_piece(x, candidates, begin, done, number, suffices, count, capacity, SIDE, BLOCK, PIECE)
        larger += tl.sum((sizes > threshold).to(tl.int32), axis=0)
        equal += tl.sum((sizes == threshold).to(tl.int32), axis=0)
    tile = tl.program_id(0).to(tl.int64)
    tl.store(kept + tile, larger.to(tl.int64))
    tl.store(kept + tl.num_programs(0).to(tl.int64) + tile, equal.to(tl.int64))


@triton.jit(do_not_specialize=["count", "k", "capacity"])
def _collect(
    x,
    total,
    candidates,
    pieces,
    limit,
    before,
    chosen,
    count,
    k,
    capacity,
    SIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
) -> None:
    """Write the positions of the magnitudes above `limit[0]`, and of the first `limit[1]` that equal it.

    `before` (2 tiles) is the running sums of `kept`, each including its own tile.
    """
    count = count.to(tl.int64)
    capacity = capacity.to(tl.int64)
    suffices = _suffice(total, k, capacity)
    begin, number = _tile_end(pieces, suffices, BLOCK)
    threshold = tl.load(limit).to(tl.int32)
    taken = tl.load(limit + 1)
    tile = tl.program_id(0).to(tl.int64)
    tiles = tl.num_programs(0).to(tl.int64)
    larger = tl.load(before + tile - 1, mask=tile > 0, other=0)
    equal = tl.load(before + tiles + tile - 1) - tl.load(before + tiles - 1)
    for done in range(0, number, PIECE):
        index, sizes = _read_piece(x, candidates, begin, done, number, suffices, count, capacity, SIDE, BLOCK, PIECE)
        above = (sizes > threshold).to(tl.int32)
        same = (sizes == threshold).to(tl.int32)
        larger_before = larger + _running_sums(above) - above
        equal_before = equal + _running_sums(same) - same
        mask = (above > 0) | ((same > 0) & (equal_before < taken))
        tl.store(chosen + larger_before + tl.minimum(equal_before, taken), index, mask=mask)
        larger += tl.sum(above, axis=0)
        equal += tl.sum(same, axis=0)


def _programs(x: torch.Tensor) -> int:
    return -(-len(x) // (_BLOCK * _LOOPS))


def largest(x: torch.Tensor, side: int = 0) -> int:
    found = torch.zeros(1, dtype=torch.int32, device=x.device)
    launch(_largest, _programs(x), x, found, len(x), SIDE=side, BLOCK=_BLOCK, LOOPS=_LOOPS)
    return int(found.item())


def is_finite(x: torch.Tensor) -> bool:
    return largest(x) < _INFINITY


class _Source(NamedTuple):
    """A tensor, and its candidates if they were looked for; else no number of them suffices."""

    x: torch.Tensor
    side: int
    k: int
    total: torch.Tensor
    candidates: torch.Tensor
    pieces: torch.Tensor

    @property
    def tiles(self) -> int:
        return -(-len(self.x) // _TILE)

    @property
    def piece(self) -> int:
        """The elements or candidates of a tile that are processed together."""
        return _TILE if self.pieces is self.total else _PIECE

    def launch(self, kernel: Any, programs: int, *tensors: torch.Tensor, pieces: bool = True, **constants: Any) -> None:
        """Run a kernel whose arguments begin with this source's tensors, followed by `tensors` and its numbers."""
        own = (self.x, self.total, self.candidates, self.pieces)[: 4 if pieces else 3]
        numbers = len(self.x), self.k, self.candidates.shape[1]
        launch(kernel, programs, *own, *tensors, *numbers, SIDE=self.side, **constants)


def _look_for_candidates(x: torch.Tensor, k: int, side: int) -> _Source:
    """Return the source of the k largest magnitudes."""
    wanted = k / len(x) * _SAMPLES
    rank = math.ceil(wanted + 4.5 * math.sqrt(wanted) + 8)  # too low once in a million times
    if rank > _SAMPLES // 4:
        return _all_of(x, k, side)
    bound = torch.empty(1, dtype=torch.int32, device=x.device)
    step = len(x) // _SAMPLES
    launch(_find_bound, 1, x, bound, len(x), step, rank, SIDE=side, SAMPLES=_SAMPLES, num_warps=16)
    return _take_candidates(x, bound, k, 2 * len(x) * rank // _SAMPLES, side)


def _take_candidates(x: torch.Tensor, bound: torch.Tensor, k: int, capacity: int, side: int) -> _Source:
    """Return the source whose candidates are the magnitudes from the bound on, of which at most `capacity` are kept."""
    tiles = -(-len(x) // _TILE)
    total = torch.zeros(1, dtype=torch.int64, device=x.device)
    candidates = torch.empty(2, max(1, capacity), dtype=torch.int32, device=x.device)
    pieces = torch.empty(2, tiles, dtype=torch.int64, device=x.device)
    tensors, constants = (x, bound, total, candidates, pieces), {"BLOCK": _TILE, "ALIGNED": len(x) % 16 == 0}
    launch(_find_candidates, tiles, *tensors, len(x), candidates.shape[1], SIDE=side, **constants)
    return _Source(x, side, k, total, candidates, pieces)


def _all_of(x: torch.Tensor, k: int, side: int) -> _Source:
    none = torch.full((1,), -1, dtype=torch.int64, device=x.device)
    return _Source(x, side, max(k, 0), none, none.int().view(1, 1), none)


def _count_by_tile(source: _Source, limit: torch.Tensor) -> torch.Tensor:
    """Return the running sums over tiles of the numbers of magnitudes above the limit, followed by those equal to it:
    (2 tiles,), in one sequence, since sums of one dimension are much faster.
    """
    kept = torch.empty(2 * source.tiles, dtype=torch.int64, device=source.x.device)
    source.launch(_count_kept, source.tiles, limit, kept, BLOCK=_TILE, PIECE=source.piece)
    return kept.cumsum(0)


def _collect_chosen(source: _Source, limit: torch.Tensor, before: torch.Tensor, number: int) -> torch.Tensor:
    chosen = torch.empty(number, dtype=torch.int64, device=source.x.device)
    source.launch(_collect, source.tiles, limit, before, chosen, BLOCK=_TILE, PIECE=source.piece)
    return chosen


def _make_limit(x: torch.Tensor, threshold: int) -> torch.Tensor:
    return torch.tensor([threshold - 1, 0], dtype=torch.int64, device=x.device)


def count_above(x: torch.Tensor, threshold: int, side: int = 0) -> int:
    if not len(x):
        return 0
    source = _all_of(x, 0, side)
    return int(_count_by_tile(source, _make_limit(x, threshold))[source.tiles - 1])


def collect_above(x: torch.Tensor, threshold: int, capacity: int, side: int = 0) -> torch.Tensor | None:
    if not len(x):
        return torch.empty(0, dtype=torch.int64, device=x.device)
    limit = _make_limit(x, threshold)
    if threshold > 0 and capacity < len(x) // 8:
        source = _take_candidates(x, limit[:1].int() + 1, 0, capacity, side)
        number = int(source.total)
        before = _count_by_tile(source, limit) if number <= capacity else None
    else:
        source = _all_of(x, 0, side)
        before = _count_by_tile(source, limit)
        number = int(before[source.tiles - 1])
    return _collect_chosen(source, limit, before, number) if before is not None and number <= capacity else None


def topk(x: torch.Tensor, k: int, side: int = 0) -> torch.Tensor:
    if len(x) <= _SMALL:
        return plain.topk(x, k, side)
    k = min(max(k, 0), len(x))
    if not k:
        return torch.empty(0, dtype=torch.int64, device=x.device)
    if k == len(x) and not side:
        return torch.arange(k, device=x.device)
    source = _look_for_candidates(x, k, side)
    counts = torch.zeros(_DIGITS, _BINS.value, dtype=torch.int64, device=x.device)
    for step in range(_DIGITS):
        programs = min(_MOST_PROGRAMS, -(-len(x) // _BLOCK))
        source.launch(_count_digits, programs, counts, pieces=False, STEP=step, BLOCK=_BLOCK)
    limit = torch.empty(2, dtype=torch.int64, device=x.device)
    launch(_finish, 1, counts, limit, k, SIDE=side)
    before = _count_by_tile(source, limit)
    larger = before[source.tiles - 1]
    number = int(larger + torch.minimum(before[-1] - larger, limit[1])) if side else k
    return _collect_chosen(source, limit, before, number)
