"""Shared parts of methods with buckets: scale and random numbers of a bucket, and the position of its codes.

Scales are handled as the bits of float32: for magnitudes integer order is the order of the numbers, with
Inf and then NaN above all.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.buckets import launch_tiles, tile, tiling, word_places
from compressors.kernels.cuda.primitives.launch import launch
from compressors.kernels.cuda.primitives.packing import load_words, unpack_at, unpack_words, word_pointer
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.sums import bucket_moments

MAGNITUDE = tl.constexpr(0x7FFFFFFF)
INFINITY = tl.constexpr(0x7F800000)
NAN = tl.constexpr(0x7FC00000)
LARGEST = torch.finfo(torch.float32).max
_PART = tl.constexpr(1 << 30)
_TABLED = tl.constexpr(8)
_LARGEST_SQUARE = tl.constexpr(LARGEST**2)
_BLOCK = 128


@triton.jit(do_not_specialize=["count", "bucket", "across"])
def _largest(x, found, count, bucket, across, ROWS: tl.constexpr, COLS: tl.constexpr, ALIGNED: tl.constexpr) -> None:
    number, inside, index, exists, real = tile(count, bucket, across, ROWS, COLS, ALIGNED)
    bits = tl.load(x + index, mask=exists, other=0.0).to(tl.int32, bitcast=True)
    tl.atomic_max(found + number, tl.max(bits & MAGNITUDE, axis=1), mask=real, sem="relaxed")


def largest_magnitudes(x: torch.Tensor, bucket: int) -> torch.Tensor:
    """Return the largest magnitude of every bucket: (buckets,) int32."""
    tiles = tiling(len(x), bucket)
    found = torch.zeros(tiles.buckets, dtype=torch.int32, device=x.device)
    launch_tiles(_largest, tiles, (x, found))
    return found


@triton.jit(do_not_specialize=["count", "divisor"])
def _take_roots(squares, found, count, divisor, BLOCK: tl.constexpr) -> None:
    """Write the roots of float64 numbers divided by `divisor`, as bits; at most the largest float32, or NaN."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    square = tl.load(squares + number, mask=number < count, other=0.0)
    divided = tl.minimum(square / divisor.to(tl.float64), _LARGEST_SQUARE)
    root = tl.sqrt(divided).to(tl.float32).to(tl.int32, bitcast=True)
    tl.store(found + number, tl.where(square < float("inf"), root, NAN), mask=number < count)


@triton.jit(do_not_specialize=["divisor"])
def _divide(total, found, divisor) -> None:
    """Write a float64 divided by `divisor`, rounded to float32, as bits."""
    value = tl.load(total)
    bits = (value / divisor.to(tl.float64)).to(tl.float32).to(tl.int32, bitcast=True)
    tl.store(found, tl.where(value < float("inf"), bits, NAN))


def norms(x: torch.Tensor, bucket: int, euclidean: bool) -> torch.Tensor:
    """Return the l2 norm or the largest magnitude of every bucket, as bits: (buckets,) int32.

    An l2 norm is at most the largest float32. The bits are at least INFINITY for a bucket that holds NaN or Inf.
    """
    if not len(x) or not euclidean:
        return largest_magnitudes(x, bucket)
    squares = bucket_moments(x, bucket)[2]
    found = torch.empty(len(squares), dtype=torch.int32, device=x.device)
    launch(_take_roots, -(-len(squares) // _BLOCK), squares, found, len(squares), 1, BLOCK=_BLOCK)
    return found


def mean_size(x: torch.Tensor, euclidean: bool) -> torch.Tensor:
    """Return the mean magnitude of `x`, or if `euclidean` the root mean square, as bits: (1,) int32; 0 for no
    elements. It is NaN if `x` holds NaN or Inf.
    """
    found = torch.zeros(1, dtype=torch.int32, device=x.device)
    if len(x):
        sums = bucket_moments(x, len(x))
        if euclidean:
            launch(_take_roots, 1, sums[2], found, 1, len(x), BLOCK=_BLOCK)
        else:
            launch(_divide, 1, sums[1], found, len(x))
    return found


@triton.jit
def canonical(bits) -> tl.tensor:
    """Return the bits of scales, with every NaN and Inf replaced by the one NaN that is sent."""
    return tl.where((bits >= INFINITY) | (bits < 0), NAN, bits)


@triton.jit
def divide_by_scales(magnitude, scale) -> tl.tensor:
    """Return the magnitudes (ROWS, COLS) of a tile divided by the scales of its buckets, given as bits (ROWS,).

    They are not divided if the scale is zero, and zero if it is NaN.
    """
    divisor = scale.to(tl.float32, bitcast=True)
    divisor = tl.where(divisor > 0, divisor, 1.0)[:, None]
    return tl.where((scale == NAN)[:, None], 0.0, tl.div_rn(magnitude, tl.broadcast_to(divisor, magnitude.shape)))


@triton.jit
def bucket_draws(key, number, inside, bucket, across, COLS: tl.constexpr) -> tl.tensor:
    """Return uniform uint32 for the elements of a tile, from the streams that `reference.scales` defines."""
    part = (tl.program_id(0) % across).to(tl.int64) * COLS // _PART
    stream = stream_bits(key, (number * ((bucket.to(tl.int64) + _PART - 1) // _PART) + part).to(tl.uint64))
    return draw(stream[:, None], (inside & (_PART - 1)).to(tl.uint32)[None, :])


@triton.jit
def draw_round_up(exact, level, random) -> tl.tensor:
    """Return 1 with the probability exact - level, which is in [0, 1), else 0; int32."""
    threshold = ((exact - level.to(tl.float32)) * 2147483648.0).to(tl.int32)
    return ((random >> 1).to(tl.int32) < threshold).to(tl.int32)


@triton.jit
def factor_of(bits, weight) -> tl.tensor:
    """Return weight * scale, rounded once; `weight` is the bits of a float64."""
    wide = bits.to(tl.float32, bitcast=True).to(tl.float64)
    return (weight.to(tl.int64).to(tl.float64, bitcast=True) * wide).to(tl.float32)


@triton.jit
def read_scales(payload, number, real) -> tl.tensor:
    """Return the scales of the buckets `number`, as bits, and whether one of them cannot come from an encoder."""
    bits = load_words(payload, number, real)
    bad = ((bits < 0) | (bits >= INFINITY)) & (bits != NAN)
    return bits, tl.max(bad.to(tl.int32), axis=0)


@triton.jit
def read_codes(
    payload, number, inside, exists, across, header, count, bucket, WIDTH: tl.constexpr, WORDS: tl.constexpr
) -> tl.tensor:
    """Return the codes of a tile as int32, written by `write_codes`; 0 where no element exists."""
    if WORDS:
        rows: tl.constexpr = exists.shape[0]
        columns: tl.constexpr = exists.shape[1]
        place, real = word_places(number, across, header, count, bucket, WIDTH, rows, columns)
        words = tl.load(word_pointer(payload) + place, mask=real, other=0)
        return tl.reshape(unpack_words(words, WIDTH), (rows, columns))
    else:
        start = header + number * ((bucket.to(tl.int64) * WIDTH + 7) // 8)
        return unpack_at(payload, start[:, None], inside[None, :], exists, WIDTH)


@functools.cache
def step_table(width: int, middle: int, top: int, device: torch.device) -> torch.Tensor:
    """Return (code - middle) / top, rounded once, for all codes of `width` bits, for `steps_of`; of long codes for the
    first alone.
    """
    codes = range(1 << width if width <= _TABLED.value else 1)
    # A quotient of two such integers lies too far from the middle of two float32 to be rounded differently by way of
    # float64.
    return torch.tensor([(code - middle) / top for code in codes], dtype=torch.float32, device=device)


@triton.jit
def steps_of(code, table, middle, top, WIDTH: tl.constexpr) -> tl.tensor:
    """Return (code - middle) / top, rounded once; `table` is from `step_table`."""
    if WIDTH <= _TABLED:
        return tl.load(table + code)  # a division takes fifteen instructions
    else:
        return tl.div_rn((code - middle).to(tl.float32), tl.zeros(code.shape, tl.float32) + top.to(tl.float32))


@triton.jit
def add_to(out, index, exists, value) -> None:
    """Compute out[index] += value for the elements that exist."""
    tl.store(out + index, tl.load(out + index, mask=exists, other=0.0) + value, mask=exists)
