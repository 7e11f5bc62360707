"""Signs in Triton; `reference.signs` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import float64_bits, is_raised, launch, make_flag, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import load_words, pack_at, store_words, unpack_at
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, NAN, add_to, factor_of
from compressors.kernels.cuda.sums import bucket_moments
from compressors.kernels.quotients import divide

_BLOCK = 1024


@triton.jit
def _places(BLOCK: tl.constexpr) -> tl.tensor:
    return tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _signs(bits, index, key, fair) -> tl.tensor:
    """Return the signs, 1 for minus; a zero gets plus, or if `fair` is 1 one of the 32 bits of a draw."""
    coins = draw(stream_bits(key, tl.zeros(index.shape, tl.uint64)), (index >> 5).to(tl.uint32))
    coin = (coins >> (index & 31).to(tl.uint32)).to(tl.int32) & 1
    return tl.where((bits & MAGNITUDE) == 0, coin * fair, (bits >> 31) & 1)


@triton.jit
def write_bits(payload, codes, index, size, BLOCK: tl.constexpr) -> None:
    begin = tl.min(tl.reshape(index, (BLOCK // 8, 8)), axis=1) // 8
    end = tl.zeros((BLOCK // 8,), tl.int64) + size
    pack_at(payload, tl.reshape(codes, (BLOCK // 8, 8)), begin, end, 1, 1)


@triton.jit(do_not_specialize=["count"])
def _start_magnitudes(x, largest, count, BLOCK: tl.constexpr) -> None:
    index = _places(BLOCK)
    bits = tl.load(x + index, mask=index < count, other=0.0).to(tl.int32, bitcast=True)
    tl.atomic_max(largest, tl.max(bits & MAGNITUDE, axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["count", "beta", "rest"])
def _start_momentum(momentum, x, largest, count, beta, rest, BLOCK: tl.constexpr) -> None:
    """Compute momentum = beta * momentum + rest * x, and its largest magnitude; the factors are bits of float64."""
    index = _places(BLOCK)
    kept = beta.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    added = rest.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    old = tl.load(momentum + index, mask=index < count, other=0.0)
    new = old * kept + tl.load(x + index, mask=index < count, other=0.0) * added
    tl.store(momentum + index, new, mask=index < count)
    tl.atomic_max(largest, tl.max(new.to(tl.int32, bitcast=True) & MAGNITUDE, axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["count", "size", "key"])
def _encode(x, largest, payload, count, size, key, BLOCK: tl.constexpr) -> None:
    """Write the signs, followed by the two flags (all zero; not finite)."""
    index = _places(BLOCK)
    most = tl.load(largest)
    none = (most == 0).to(tl.int32)
    bad = (most >= INFINITY).to(tl.int32)
    bits = tl.load(x + index, mask=index < count, other=0.0).to(tl.int32, bitcast=True)
    codes = tl.where(index < count, _signs(bits, index, key, 1) * (1 - none - bad), 0)
    codes = tl.where(index == count, none, codes)
    codes = tl.where(index == count + 1, bad, codes)
    write_bits(payload, codes, index, size, BLOCK)


@triton.jit(do_not_specialize=["count", "size", "key", "fair"])
def _encode_scaled(x, scale, payload, count, size, key, fair, BLOCK: tl.constexpr) -> None:
    """Write the scale, given as bits, and the signs; no signs if the scale is zero or NaN."""
    index = _places(BLOCK)
    mean = tl.load(scale)
    if tl.program_id(0) == 0:
        first = tl.arange(0, 2).to(tl.int64)
        store_words(payload, first, tl.zeros((2,), tl.int32) + mean, first == 0)
    bits = tl.load(x + index, mask=index < count, other=0.0).to(tl.int32, bitcast=True)
    signs = tl.where((mean == 0) | (mean >= INFINITY), 0, _signs(bits, index, key, fair))
    write_bits(payload + 4, tl.where(index < count, signs, 0), index, size - 4, BLOCK)


def encode(x: torch.Tensor, key: int, payload: torch.Tensor) -> None:
    largest = torch.zeros(1, dtype=torch.int32, device=x.device)
    launch(_start_magnitudes, -(-len(x) // _BLOCK), x, largest, len(x), BLOCK=_BLOCK)
    _encode_signs(x, largest, key, payload)


def _encode_signs(x: torch.Tensor, largest: torch.Tensor, key: int, payload: torch.Tensor) -> None:
    programs = -(-(len(x) + 2) // _BLOCK)
    launch(_encode, programs, x, largest, payload, len(x), len(payload), wrap_to_int64(key), BLOCK=_BLOCK)


def encode_momentum(momentum: torch.Tensor, x: torch.Tensor, beta: float, key: int, payload: torch.Tensor) -> None:
    largest = torch.zeros(1, dtype=torch.int32, device=x.device)
    factors = float64_bits(beta), float64_bits(1.0 - beta)
    launch(_start_momentum, -(-len(x) // _BLOCK), momentum, x, largest, len(x), *factors, BLOCK=_BLOCK)
    _encode_signs(momentum, largest, key, payload)


def encode_scaled(x: torch.Tensor, key: int, euclidean: bool, fair: bool, payload: torch.Tensor) -> None:
    scale = torch.zeros(1, dtype=torch.int32, device=x.device)
    if len(x):
        mean = divide(bucket_moments(x, len(x))[2 if euclidean else 1], len(x))
        exact = mean.sqrt() if euclidean else mean
        scale = torch.where(mean.isfinite(), exact.float().view(torch.int32), NAN.value)
    programs = max(1, -(-len(x) // _BLOCK))
    numbers = len(x), len(payload), wrap_to_int64(key), int(fair)
    launch(_encode_scaled, programs, x, scale, payload, *numbers, BLOCK=_BLOCK)


@triton.jit(do_not_specialize=["count", "size", "weight"])
def _decode_add(payload, out, wrong, count, size, weight, BLOCK: tl.constexpr) -> None:
    """Add weight * sign to `out`: zeros if the flag for zeros is set, NaN if that for NaN or Inf is set.

    Set `wrong` if no encoder can have written the bits after the signs.
    """
    index = _places(BLOCK)
    behind = count.to(tl.int64) + tl.arange(0, 16)
    last = unpack_at(payload, 0, behind, behind < 8 * size.to(tl.int64), 1)
    place = tl.arange(0, 16)
    none = tl.sum(tl.where(place == 0, last, 0), axis=0)
    bad = tl.sum(tl.where(place == 1, last, 0), axis=0)
    broken = tl.sum(last, axis=0) > tl.minimum(none + bad, 1)
    sent = tl.zeros((BLOCK,), tl.int32) + none == 0
    exists = index < count
    sign = unpack_at(payload, 0, index, exists, 1)
    factor = weight.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    value = (1 - 2 * sign).to(tl.float32) * factor
    old = tl.load(out + index, mask=exists, other=0.0)
    tl.store(out + index, tl.where(bad > 0, float("nan"), old + value), mask=exists & sent)
    tl.store(wrong, 1, mask=broken)


@triton.jit(do_not_specialize=["count", "weight"])
def _decode_add_scaled(payload, out, wrong, count, weight, BLOCK: tl.constexpr) -> None:
    index = _places(BLOCK)
    exists = index < count
    word = tl.zeros((1,), tl.int64)
    scale = load_words(payload, word, word == 0)
    sign = unpack_at(payload, 4, index, exists, 1)
    add_to(out, index, exists, factor_of(scale, weight) * (1 - 2 * sign).to(tl.float32))
    bad = ((scale < 0) | (scale >= INFINITY)) & (scale != NAN)
    tl.store(wrong, 1, mask=tl.max(bad.to(tl.int32), axis=0) > 0)


def decode_add(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    wrong = make_flag(out)
    programs = max(1, -(-len(out) // _BLOCK))
    bits = float64_bits(weight)
    launch(_decode_add, programs, payload, out, wrong, len(out), len(payload), bits, BLOCK=_BLOCK)
    return not is_raised(wrong)


def decode_add_scaled(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    wrong = make_flag(out)
    programs = max(1, -(-len(out) // _BLOCK))
    launch(_decode_add_scaled, programs, payload, out, wrong, len(out), float64_bits(weight), BLOCK=_BLOCK)
    return not is_raised(wrong)
