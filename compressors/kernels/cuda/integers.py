"""Rounding to evenly spaced levels in Triton; `reference.integers` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import wrap_to_int64
from compressors.kernels.cuda.primitives.packing import load_words, store_words
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import (
    INFINITY,
    MAGNITUDE,
    NAN,
    add_to,
    divide_by_scales,
    draw_round_up,
    factor_of,
    read_codes,
    step_table,
    steps_of,
)

_HUGE = tl.constexpr(2.0**126)
_HALFWAY = tl.constexpr(12582912.0)
"""1.5 * 2^23: float32 has no fractions there, so adding it rounds to the nearest, of two to the even."""
_LEAST = tl.constexpr(-(2**31))
_MOST = tl.constexpr(2**31 - 1)


@triton.jit
def _order(bits) -> tl.tensor:
    """Return the bits of float32 as integers in the order of the numbers, with -0.0 before 0.0; the function is its own
    inverse.
    """
    return bits ^ ((bits >> 31) & MAGNITUDE)


@triton.jit
def _bounds(bits, exists) -> tl.tensor:
    """Return the smallest and the largest element of each row, as `_order` integers, and the largest magnitude."""
    order = _order(bits)
    low = tl.min(tl.where(exists, order, _MOST), axis=1)
    high = tl.max(tl.where(exists, order, _LEAST), axis=1)
    return low, high, tl.max(tl.where(exists, bits & MAGNITUDE, 0), axis=1)


@triton.jit(do_not_specialize=["count", "bucket", "across", "buckets"])
def _find_bounds(
    x, found, count, bucket, across, buckets, ROWS: tl.constexpr, COLS: tl.constexpr, ALIGNED: tl.constexpr
) -> None:
    """Find the three `_bounds` of each bucket: `found` is (3, buckets) int32."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    low, high, most = _bounds(tl.load(x + index, mask=exists, other=0.0).to(tl.int32, bitcast=True), exists)
    tl.atomic_min(found + number, low, mask=real, sem="relaxed")
    tl.atomic_max(found + buckets.to(tl.int64) + number, high, mask=real, sem="relaxed")
    tl.atomic_max(found + 2 * buckets.to(tl.int64) + number, most, mask=real, sem="relaxed")


@triton.jit
def _between(value, low_bits, high_bits, bad) -> tl.tensor:
    """Return (x - low) / (high - low), in [0, 1], computed from halved numbers, so that huge ones do not overflow
    float32.
    """
    low = tl.where(bad, 0, low_bits).to(tl.float32, bitcast=True)
    high = tl.where(bad, 0, high_bits).to(tl.float32, bitcast=True)
    factor = tl.where((tl.abs(low) >= _HUGE) | (tl.abs(high) >= _HUGE), 0.5, 1.0)
    start = low * factor
    length = high * factor - start
    length = tl.where(length > 0, length, 1.0)
    place = value * factor[:, None] - start[:, None]
    return tl.div_rn(place, tl.broadcast_to(length[:, None], value.shape))


@triton.jit(do_not_specialize=["count", "bucket", "across", "buckets", "key"])
def _encode(
    x,
    found,
    payload,
    count,
    bucket,
    across,
    buckets,
    key,
    MINMAX: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    TOP: tl.constexpr,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
    GIVEN: tl.constexpr,
) -> None:
    """Write bounds and packed codes of one tile; if GIVEN, `found` has the bounds, else they are computed."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    value = tl.load(x + index, mask=exists, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    if GIVEN:
        low = tl.load(found + number, mask=real, other=0)
        high = tl.load(found + buckets.to(tl.int64) + number, mask=real, other=0)
        most = tl.load(found + 2 * buckets.to(tl.int64) + number, mask=real, other=0)
    else:
        low, high, most = _bounds(bits, exists)
    bad = most >= INFINITY
    low = tl.where(bad, NAN, _order(low))
    high = tl.where(bad, NAN, _order(high))
    most = tl.where(bad, NAN, most)
    if tl.program_id(0) % across == 0:
        if MINMAX:
            store_words(payload, 2 * number, low, real)
            store_words(payload, 2 * number + 1, high, real)
        else:
            store_words(payload, number, most, real)
    place = _between(value, low, high, bad) if MINMAX else divide_by_scales(tl.abs(value), most)
    exact = tl.where(bad[:, None] | (exists == 0), 0.0, place * TOP)
    if STOCHASTIC:
        level = exact.to(tl.int32)
        random = draw(stream_bits(key, number.to(tl.uint64))[:, None], inside.to(tl.uint32)[None, :])
        level += draw_round_up(exact, level, random)
    else:
        level = ((exact + _HALFWAY) - _HALFWAY).to(tl.int32)
    if MINMAX:
        header = 8 * buckets.to(tl.int64)
    else:
        header = 4 * buckets.to(tl.int64)
        sign = bits >> 31
        level = TOP + ((level ^ sign) - sign)
    write_codes(payload, tl.where(exists, level, 0), number, across, header, count, bucket, WIDTH, WORDS)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight", "top"])
def _decode_add(
    payload,
    out,
    wrong,
    count,
    bucket,
    across,
    header,
    weight,
    table,
    top,
    MINMAX: tl.constexpr,
    TOP: tl.constexpr,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    code = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS)
    if MINMAX:
        low = load_words(payload, 2 * number, real)
        high = load_words(payload, 2 * number + 1, real)
        finite = ((low & MAGNITUDE) < INFINITY) & ((high & MAGNITUDE) < INFINITY)
        ordered = low.to(tl.float32, bitcast=True) <= high.to(tl.float32, bitcast=True)
        good = (finite & ordered) | ((low == NAN) & (high == NAN))
        from_low = factor_of(low, weight)[:, None] * steps_of(TOP - code, table, 0, top, WIDTH)
        from_high = factor_of(high, weight)[:, None] * steps_of(code, table, 0, top, WIDTH)
        add_to(out, index, exists, from_low + from_high)
        bad = tl.max(tl.where(good, 0, 1), axis=0)
    else:
        most = load_words(payload, number, real)
        good = ((most >= 0) & (most < INFINITY)) | (most == NAN)
        add_to(out, index, exists, factor_of(most, weight)[:, None] * steps_of(code, table, TOP, top, WIDTH))
        bad = tl.max(tl.where(good, 0, 1), axis=0) + tl.max(tl.max((code > 2 * TOP).to(tl.int32), axis=1), axis=0)
    tl.store(wrong, 1, mask=bad > 0)


def _top(width: int, minmax: bool) -> int:
    """Return the highest level."""
    return 2**width - 1 if minmax else 2 ** (width - 1) - 1


def encode(
    x: torch.Tensor, key: int, width: int, bucket: int, minmax: bool, stochastic: bool, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    found = payload
    if not tiles.whole:
        found = torch.zeros(3, tiles.buckets, dtype=torch.int32, device=x.device)
        found[0], found[1] = _MOST.value, _LEAST.value
        launch_tiles(_find_bounds, tiles, (x, found), tiles.buckets)
    launch_tiles(
        _encode, tiles, (x, found, payload), tiles.buckets, wrap_to_int64(key), MINMAX=minmax, STOCHASTIC=stochastic,
        TOP=_top(width, minmax), WIDTH=width, WORDS=tiles.fill_words(payload, width), GIVEN=not tiles.whole,
    )  # fmt: skip


def decode_add(payload: torch.Tensor, width: int, bucket: int, minmax: bool, weight: float, out: torch.Tensor) -> bool:
    top = _top(width, minmax)
    table = step_table(width, 0 if minmax else top, top, out.device)
    constants = {"MINMAX": minmax, "TOP": top, "WIDTH": width}
    return decode_tiles(_decode_add, payload, bucket, weight, out, table, top, head=8 if minmax else 4, **constants)
