"""Statistics of magnitudes above a threshold in Triton; `reference.exceedances` defines the order of their sums.

As in `sums`, a program works on a few chunks, and the totals of the chunks go through the same kernel again.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits
from compressors.kernels.cuda.scales import MAGNITUDE
from compressors.kernels.cuda.sums import CHUNKS, LANES, chunks_of, combine, first_places, fold, launch_chunks

_FRACTION = tl.constexpr((1 << 52) - 1)
_ONE = tl.constexpr(1023 << 52)


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps", "threshold", "location", "total"])
def _exceedances(
    x, totals, found, count, bucket, across, steps, threshold, location, total, UNROLL: tl.constexpr
) -> None:
    """Write the sums of the excesses over `location`, and of their squares, of some of the `total` chunks, (2, total)
    float64.

    The number of magnitudes that reach the threshold is added to `found`. `location` is the bits of a float64.
    """
    chunk, exists, place, end = first_places(count, bucket, across)
    start = location.to(tl.int64).to(tl.float64, bitcast=True)
    plain = tl.zeros((CHUNKS, LANES), tl.float64)
    square = tl.zeros((CHUNKS, LANES), tl.float64)
    above = tl.zeros((CHUNKS, LANES), tl.int32)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            inside = place < end
            value = tl.load(x + place, mask=inside, other=0.0)
            excess = tl.abs(value).to(tl.float64) - start
            excess = tl.where(inside & (excess > 0.0), excess, 0.0)
            plain += excess
            square += excess * excess
            above += (inside & ((value.to(tl.int32, bitcast=True) & MAGNITUDE) >= threshold)).to(tl.int32)
            place += LANES
    tl.store(totals + chunk, fold(plain), mask=exists)
    tl.store(totals + total.to(tl.int64) + chunk, fold(square), mask=exists)
    tl.atomic_add(found, tl.sum(tl.sum(above, axis=1), axis=0).to(tl.int64), sem="relaxed")


def moments_above(x: torch.Tensor, threshold: int, location: float) -> tuple[int, float, float]:
    if not len(x):
        return 0, 0.0, 0.0
    chunks = chunks_of(len(x), len(x))
    totals = torch.empty(2, chunks.across, dtype=torch.float64, device=x.device)
    found = torch.zeros(1, dtype=torch.int64, device=x.device)
    launch_chunks(_exceedances, chunks, (x, totals, found), threshold, float64_bits(location), chunks.across)
    count, excess, squares = torch.cat([found.double(), combine(totals)]).tolist()
    return int(count), excess, squares


@triton.jit
def _split(values) -> tl.tensor:
    """Return exponents (int64) and mantissas of non-negative float64; a zero is treated as 1."""
    bits = values.to(tl.int64, bitcast=True)
    bits = tl.where(bits == 0, _ONE, bits)
    return (bits >> 52) - 1023, ((bits & _FRACTION) | _ONE).to(tl.float64, bitcast=True)


@triton.jit
def _multiply_halves(lanes) -> tl.tensor:
    """Multiply the halves of the lanes by each other: (rows, n) -> (rows, n // 2)."""
    halves = tl.permute(tl.reshape(lanes, (lanes.shape[0], 2, lanes.shape[1] // 2)), (0, 2, 1))
    one, other = tl.split(halves)
    return one * other


@triton.jit(do_not_specialize=["count", "bucket", "across", "steps"])
def _products(values, products, sums, count, bucket, across, steps, UNROLL: tl.constexpr) -> None:
    """Write the products of the mantissas of some chunks.

    The number of magnitudes that are not zero is added to `sums[0]`, and the sum of all exponents to `sums[1]`.
    """
    chunk, exists, place, end = first_places(count, bucket, across)
    lanes = tl.full((CHUNKS, LANES), 1.0, tl.float64)
    exponents = tl.zeros((CHUNKS, LANES), tl.int64)
    nonzero = tl.zeros((CHUNKS, LANES), tl.int32)
    for _ in range(0, steps, UNROLL):
        for _ in tl.static_range(UNROLL):
            value = tl.abs(tl.load(values + place, mask=place < end, other=0.0)).to(tl.float64)
            exponent, mantissa = _split(value)
            lanes *= mantissa
            exponents += exponent
            nonzero += (value.to(tl.int64, bitcast=True) != 0).to(tl.int32)
            place += LANES
    exponent, lanes = _split(lanes)
    exponents += exponent
    product = tl.reshape(_multiply_halves(_multiply_halves(_multiply_halves(_multiply_halves(lanes)))), (CHUNKS,))
    tl.store(products + chunk, product, mask=exists)
    tl.atomic_add(sums, tl.sum(tl.sum(nonzero, axis=1), axis=0).to(tl.int64), sem="relaxed")
    tl.atomic_add(sums + 1, tl.sum(tl.sum(exponents, axis=1), axis=0), sem="relaxed")


def _multiply_chunks(values: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return the product of the elements of each chunk."""
    chunks = chunks_of(len(values), len(values))
    products = torch.empty(chunks.across, dtype=torch.float64, device=values.device)
    launch_chunks(_products, chunks, (values, products, sums))
    return products


def logarithms(x: torch.Tensor) -> tuple[int, int, float]:
    if not len(x):
        return 0, 0, 1.0
    sums = torch.zeros(2, 2, dtype=torch.int64, device=x.device)  # of the first round, and of those after it
    products = _multiply_chunks(x, sums[0])
    while len(products) > 1:
        products = _multiply_chunks(products, sums[1])
    (count, exponent), (_, more) = sums.tolist()
    mantissa, last = math.frexp(float(products[0]))  # in [1/2, 1)
    return count, exponent + more + last - 1, 2.0 * mantissa
