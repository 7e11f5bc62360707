"""QSGD in Triton; `compressors.quantisation.qsgd_terngrad_onebit.QSGD` documents the payload and `reference.qsgd`
the arithmetic.

A bucket of up to 4096 elements stays in registers from its norm to its bytes. A longer one is read twice,
and so is one under the l2 norm, which is summed in eight lanes from left to right.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import decode_tiles, launch_tiles, tile, tiling, write_codes
from compressors.kernels.cuda.primitives.launch import launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import store_words
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import (
    LARGEST,
    MAGNITUDE,
    NAN,
    add_to,
    canonical,
    divide_by_scales,
    draw_round_up,
    factor_of,
    largest_magnitudes,
    read_codes,
    read_scales,
    step_table,
    steps_of,
)
from compressors.kernels.cuda.sums import add_halves

_ROWS = 16
_LARGEST_SQUARE = tl.constexpr(LARGEST**2)


@triton.jit(do_not_specialize=["count", "bucket", "steps"])
def _euclidean(x, norms, count, bucket, steps, ROWS: tl.constexpr, UNROLL: tl.constexpr) -> None:
    """Write the l2 norms of ROWS buckets, as bits, summed in the order of `reference.buckets.lane_sums`."""
    count = count.to(tl.int64)
    bucket = bucket.to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    begin = number[:, None] * bucket
    end = tl.minimum(begin + bucket, count)
    place = begin + tl.arange(0, 8)[None, :]
    lanes = tl.zeros((ROWS, 8), tl.float64)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):  # as many loads are under way; behind the last step nothing is left
            value = tl.load(x + place, mask=place < end, other=0.0).to(tl.float64)
            lanes += value * value
            place += 8
    total = tl.reshape(add_halves(add_halves(add_halves(lanes))), (ROWS,))
    norm = tl.sqrt(tl.minimum(total, _LARGEST_SQUARE)).to(tl.float32).to(tl.int32, bitcast=True)
    # A sum of NaN is not below Inf either.
    norm = tl.where(total < float("inf"), norm, NAN)
    tl.store(norms + number, norm, mask=number * bucket < count)


def euclidean_norms(x: torch.Tensor, bucket: int) -> torch.Tensor:
    buckets = -(-len(x) // bucket)
    norms = torch.empty(buckets, dtype=torch.int32, device=x.device)
    steps = -(-min(bucket, len(x)) // 8)
    unroll = 8 if steps >= 8 else 1
    launch(_euclidean, -(-buckets // _ROWS), x, norms, len(x), bucket, steps, ROWS=_ROWS, UNROLL=unroll)
    return norms


@triton.jit
def levels_of(value, norm, number, inside, key, levels) -> tl.tensor:
    """Return the signed levels of a tile (ROWS, COLS) of the buckets `number`; 0 if the norm is NaN.

    `norm` (ROWS,) is the norms, as bits.
    """
    exact = divide_by_scales(tl.abs(value), norm) * levels.to(tl.float32)
    level = exact.to(tl.int32)
    random = draw(stream_bits(key, number.to(tl.uint64))[:, None], inside.to(tl.uint32)[None, :])
    level += draw_round_up(exact, level, random)
    sign = value.to(tl.int32, bitcast=True) >> 31
    return (level ^ sign) - sign


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "key", "levels"])
def _encode(
    x,
    norms,
    payload,
    count,
    bucket,
    across,
    header,
    key,
    levels,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
    GIVEN: tl.constexpr,
) -> None:
    """Write norms and packed codes of one tile; if GIVEN, `norms` has the norms as bits, else they are computed."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    value = tl.load(x + index, mask=exists, other=0.0)
    if GIVEN:
        norm = canonical(tl.load(norms + number, mask=real, other=0))
    else:
        norm = canonical(tl.max(value.to(tl.int32, bitcast=True) & MAGNITUDE, axis=1))
    if tl.program_id(0) % across == 0:
        store_words(payload, number, norm, real)
    codes = tl.where(exists, levels + levels_of(value, norm, number, inside, key, levels), 0)
    write_codes(payload, codes, number, across, header, count, bucket, WIDTH, WORDS)


@triton.jit(do_not_specialize=["count", "bucket", "across", "header", "weight", "levels"])
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
    levels,
    WIDTH: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Add weight * Q(x) of one tile to `out`; set `wrong` if `encode` cannot have written the payload."""
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    norm, bad = read_scales(payload, number, real)
    code = read_codes(payload, number, inside, exists, across, header, count, bucket, WIDTH, WORDS)
    add_to(out, index, exists, factor_of(norm, weight)[:, None] * steps_of(code, table, levels, levels, WIDTH))
    bad += tl.max(tl.max((code > 2 * levels).to(tl.int32), axis=1), axis=0)
    tl.store(wrong, 1, mask=bad > 0)


def encode(
    x: torch.Tensor, key: int, levels: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    tiles = tiling(len(x), bucket)
    given = euclidean or not tiles.whole
    norms = (euclidean_norms if euclidean else largest_magnitudes)(x, bucket) if given else payload
    constants = {"WIDTH": width, "WORDS": tiles.fill_words(payload, width), "GIVEN": given}
    launch_tiles(_encode, tiles, (x, norms, payload), 4 * tiles.buckets, wrap_to_int64(key), levels, **constants)


def decode_add(payload: torch.Tensor, levels: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    table = step_table(width, levels, levels, out.device)
    return decode_tiles(_decode_add, payload, bucket, weight, out, table, levels, WIDTH=width)
