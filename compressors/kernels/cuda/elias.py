"""QSGD's levels as streams of Elias codes in Triton; `reference.elias` says what is computed.

To write, a program processes a few buckets, in pieces of several elements of each: once to compute the lengths of their
streams, and again when the beginnings of the streams are known. The bits are put into 32-bit words with atomic ors. To
read, each thread decodes one stream from its beginning, with a table of short symbols. Long buckets have too few
streams for that; they are read by the reference, which finds the beginnings of all symbols by doubling.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels import elias_omega as codes
from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.cuda.primitives.buckets import tiling
from compressors.kernels.cuda.primitives.elias_codes import GUARD, omega, or_bits, peek, read_omega
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.qsgd import euclidean_norms, levels_of
from compressors.kernels.cuda.scales import INFINITY, NAN, add_to, canonical, factor_of, largest_magnitudes
from compressors.kernels.reference import elias as plain
from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.packing import pack, unpack

_STREAMS = 32
_LONGEST = 4096
"""Streams of so many elements at most are read by one thread each: there are many of them, or they are short."""
_PEEK = 13  # bits that are looked up at once


@functools.cache
def _short_symbols(device: torch.device) -> torch.Tensor:
    return torch.tensor(codes.symbols(_PEEK), dtype=torch.int32, device=device)


@triton.jit
def _larger(one, other) -> tl.tensor:
    return tl.maximum(one, other)


@triton.jit
def _levels_at(x, norm, number, inside, count, bucket, key, levels) -> tl.tensor:
    """Return the levels of the elements at positions `inside` (COLS,) of the buckets `number` (ROWS,); 0 outside of the
    tensor.
    """
    index = number[:, None] * bucket + inside[None, :]
    exists = (inside >= 0)[None, :] & (inside < bucket)[None, :] & (index < count)
    value = tl.load(x + index, mask=exists, other=0.0)
    return tl.where(exists, levels_of(value, norm, number, inside, key, levels), 0)


@triton.jit
def _symbols(x, norm, number, inside, before, count, bucket, key, levels) -> tl.tensor:
    """Return the symbols of the next elements of some buckets: where the level is not zero, and two codes with their
    lengths.

    One code is of the gap before the element, the other of its sign and level; both lengths are zero if the level is.
    Return also the last element of each bucket with a level; `before` (ROWS,) is that of the previous elements.
    """
    level = _levels_at(x, norm, number, inside, count, bucket, key, levels)
    # The levels of the elements before are computed anew: they may be with another thread.
    left = _levels_at(x, norm, number, inside - 1, count, bucket, key, levels)
    last = tl.associative_scan(tl.where(left != 0, inside[None, :] - 1, -1), 1, _larger)
    gap, gap_length = omega(inside[None, :] - tl.maximum(last, before[:, None]))
    height, height_length = omega(tl.maximum(tl.abs(level), 1).to(tl.int64))
    height = (height << 1) | (level < 0).to(tl.int64)
    some = level != 0
    gap_length = tl.where(some, gap_length, 0)
    height_length = tl.where(some, height_length + 1, 0)
    before = tl.maximum(before, tl.max(tl.where(some, inside[None, :], -1), axis=1))
    return some, gap, height, gap_length.to(tl.int32), height_length.to(tl.int32), before


@triton.jit(do_not_specialize=["count", "bucket", "pieces", "key", "levels"])
def _measure(x, norms, sizes, count, bucket, pieces, key, levels, ROWS: tl.constexpr, COLS: tl.constexpr) -> None:
    """Compute the lengths in bytes of the streams of some buckets."""
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = number * bucket < count
    norm = canonical(tl.load(norms + number, mask=real, other=0))
    inside = tl.arange(0, COLS).to(tl.int64)
    before = tl.full((ROWS,), -1, tl.int64)
    used = tl.zeros((ROWS,), tl.int64)
    for _ in range(pieces):
        _, _, _, one, two, before = _symbols(x, norm, number, inside, before, count, bucket, key, levels)
        used += tl.sum(one + two, axis=1).to(tl.int64)
        inside += COLS
    tl.store(sizes + number, (used + 7) >> 3, mask=real)


@triton.jit(do_not_specialize=["count", "bucket", "pieces", "key", "levels"])
def _write(
    x, norms, ends, sizes, words, count, bucket, pieces, key, levels, ROWS: tl.constexpr, COLS: tl.constexpr
) -> None:
    """Write the streams of some buckets, which end at the bytes `ends`, into `words`, which must be zero."""
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = number * bucket < count
    norm = canonical(tl.load(norms + number, mask=real, other=0))
    inside = tl.arange(0, COLS).to(tl.int64)
    before = tl.full((ROWS,), -1, tl.int64)
    at = 8 * (tl.load(ends + number, mask=real, other=0) - tl.load(sizes + number, mask=real, other=0))
    for _ in range(pieces):
        some, gap, height, one, two, before = _symbols(x, norm, number, inside, before, count, bucket, key, levels)
        begin = at[:, None] + (tl.cumsum(one + two, axis=1) - one - two)
        or_bits(words, begin, gap, some)
        or_bits(words, begin + one, height, some)
        at += tl.sum(one + two, axis=1).to(tl.int64)
        inside += COLS
    padding = (-at) & 7
    one = tl.full((ROWS,), 1, tl.int64)
    or_bits(words, at, (one << padding) - 1, real & (padding > 0))


def encode(
    x: torch.Tensor, key: int, levels: int, bucket: int, field: int, euclidean: bool, payload: torch.Tensor
) -> int:
    if not len(x):
        return 0
    tiles = tiling(len(x), bucket)
    norms = (euclidean_norms if euclidean else largest_magnitudes)(x, bucket)
    sizes = torch.empty(tiles.buckets, dtype=torch.int64, device=x.device)
    programs = -(-tiles.buckets // tiles.rows)
    numbers = len(x), bucket, tiles.across, wrap_to_int64(key), levels
    launch(_measure, programs, x, norms, sizes, *numbers, ROWS=tiles.rows, COLS=tiles.columns)
    ends = sizes.cumsum(0)
    total = int(ends[-1])
    words = torch.zeros(-(-total // 4), dtype=torch.int32, device=x.device)
    launch(_write, programs, x, norms, ends, sizes, words, *numbers, ROWS=tiles.rows, COLS=tiles.columns)
    tables = (4 + field) * tiles.buckets
    finite = (norms >= 0) & (norms < INFINITY.value)
    write_floats(torch.where(finite, norms, NAN.value).view(torch.float32), payload[: 4 * tiles.buckets])
    payload[4 * tiles.buckets : tables] = pack(sizes[:, None], 8 * field).flatten()
    payload[tables : tables + total] = words.view(torch.uint8)[:total]
    return tables + total


@triton.jit(do_not_specialize=["count", "bucket", "levels", "weight"])
def _add_streams(
    words,
    table,
    norms,
    ends,
    sizes,
    out,
    wrong,
    count,
    bucket,
    levels,
    weight,
    STREAMS: tl.constexpr,
    PEEK: tl.constexpr,
) -> None:
    """Add the elements of some streams, a symbol of each at a time; set `wrong` if no encoder can have written them."""
    bucket = bucket.to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * STREAMS + tl.arange(0, STREAMS)
    first = number * bucket
    length = tl.minimum(count.to(tl.int64) - first, bucket)
    end = 8 * tl.load(ends + number, mask=length > 0, other=0)
    at = end - 8 * tl.load(sizes + number, mask=length > 0, other=0)
    factor = factor_of(tl.load(norms + number, mask=length > 0, other=0), weight)
    steps = tl.zeros((STREAMS,), tl.float32) + levels.to(tl.float32)
    place = tl.full((STREAMS,), -1, tl.int64)
    bad = tl.zeros((STREAMS,), tl.int32)
    active = (at < end).to(tl.int32)
    while tl.max(active, axis=0) > 0:
        # What is left is padding where it is less than a byte of ones.
        ones = (tl.full((STREAMS,), 1, tl.int64) << tl.minimum(end - at, 8)) - 1
        bits = peek(words, at)
        going = (active > 0) & ((end - at >= 8) | ((bits & ones) != ones))
        symbol = tl.load(table + (bits & ((1 << PEEK) - 1))).to(tl.int64)
        gap, negative, level, after = (symbol >> 5) & 31, (symbol >> 4) & 1, symbol >> 10, at + (symbol & 15)
        is_long = symbol == 0
        if tl.max((going & is_long).to(tl.int32), axis=0) > 0:
            long_gap, middle = read_omega(words, at)
            long_level, behind = read_omega(words, middle + 1)
            gap = tl.where(is_long, long_gap, gap)
            negative = tl.where(is_long, peek(words, middle) & 1, negative)
            level = tl.where(is_long, long_level, level)
            after = tl.where(is_long, behind, after)
        good = (gap > 0) & (level > 0) & (level <= levels) & (after <= end) & (place + gap < length)
        bad = tl.where(going & (good == 0), 1, bad)
        going = going & good
        step = tl.div_rn(tl.where(negative > 0, -level, level).to(tl.float32), steps)
        add_to(out, first + place + gap, going, factor * step)
        place = tl.where(going, place + gap, place)
        at = tl.where(going, after, at)
        active = (going & (at < end)).to(tl.int32)
    tl.store(wrong, 1, mask=tl.max(bad, axis=0) > 0)


def decode_add(payload: torch.Tensor, levels: int, bucket: int, field: int, weight: float, out: torch.Tensor) -> bool:
    if min(len(out), bucket) > _LONGEST:
        return plain.decode_add(payload, levels, bucket, field, weight, out)
    buckets = -(-len(out) // bucket)
    tables = (4 + field) * buckets
    if len(payload) < tables:
        return False
    norms = read_floats(payload[: 4 * buckets]).view(torch.int32)
    sizes = unpack(payload[4 * buckets : tables].view(buckets, field), 1, 8 * field).flatten()
    streams = payload[tables:]
    spoilt = norms == NAN.value
    scales = spoilt | ((norms >= 0) & (norms < INFINITY.value))
    fits = scales.all() & (sizes <= len(streams)).all() & (sizes.sum() == len(streams)) & ~(spoilt & (sizes > 0)).any()
    is_written, has_spoilt = torch.stack([fits, spoilt.any()]).tolist()
    if not is_written:
        return False
    words = torch.full((-(-len(streams) // 4) + GUARD,), -1, dtype=torch.int32, device=out.device)
    words.view(torch.uint8)[: len(streams)] = streams
    wrong = flags.make(out.device)
    launch(
        _add_streams, -(-buckets // _STREAMS), words, _short_symbols(out.device), norms, sizes.cumsum(0), sizes, out,
        wrong, len(out), bucket, levels, float64_bits(weight), STREAMS=_STREAMS, PEEK=_PEEK, num_warps=1,
    )  # fmt: skip
    for numbers, part in rows(out, bucket) if has_spoilt else ():
        part[spoilt[numbers]] = math.nan
    return not flags.is_raised(wrong)
