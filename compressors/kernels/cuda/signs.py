"""Signs in Triton; `reference.signs` says what is computed."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.buffers import is_aligned
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import (
    load_words,
    pack_at,
    pack_words,
    store_words,
    unpack_at,
    unpack_words,
    word_pointer,
)
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, NAN, add_to, factor_of, mean_size

_BLOCK = 2048
_SWEEP = 1 << 14
"""Bytes of a payload that one program of `_drop_signs` looks after."""


@triton.jit
def _places(count, BLOCK: tl.constexpr, ALIGNED: tl.constexpr) -> tl.tensor:
    """Return the positions of this program's elements, and whether they exist; if ALIGNED, `count` is a multiple of
    16.
    """
    count = count.to(tl.int64)
    if ALIGNED:
        count = tl.multiple_of(count, 16)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return index, index < count


@triton.jit
def _signs(bits, index, exists, key, fair) -> tl.tensor:
    """Return the signs, 1 for minus; a zero gets plus, or if `fair` is 1 one of the 32 bits of a draw."""
    zero = ((bits & MAGNITUDE) == 0) & exists
    signs = tl.where(zero, 0, (bits >> 31) & 1)
    if tl.max((zero.to(tl.int32) & fair), axis=0) > 0:  # few gradients have zeros, and draws take long
        coins = draw(stream_bits(key, tl.zeros(index.shape, tl.uint64)), (index >> 5).to(tl.uint32))
        coin = (coins >> (index & 31).to(tl.uint32)).to(tl.int32) & 1
        signs = tl.where(zero, coin, signs)
    return signs


@triton.jit
def write_bits(payload, codes, size, BLOCK: tl.constexpr, WORDS: tl.constexpr) -> None:
    """Write this program's bits, (BLOCK,) int32, into a payload of `size` bytes; if WORDS, it is aligned."""
    size = size.to(tl.int64)
    if WORDS:
        words = pack_words(tl.reshape(codes, (BLOCK // 32, 32)), 1)
        place = tl.program_id(0).to(tl.int64) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
        tl.store(word_pointer(payload) + place, words, mask=place < size // 4)
        if tl.program_id(0) == tl.num_programs(0) - 1:  # the bytes that fill no word
            byte = 4 * place[:, None] + tl.arange(0, 4)[None, :]
            value = (words[:, None] >> (8 * tl.arange(0, 4))[None, :]) & 0xFF
            tl.store(payload + byte, value.to(tl.uint8), mask=(byte >= size // 4 * 4) & (byte < size))
    else:
        begin = tl.program_id(0).to(tl.int64) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
        pack_at(payload, tl.reshape(codes, (BLOCK // 8, 8)), begin, tl.zeros((BLOCK // 8,), tl.int64) + size, 1)


@triton.jit
def _read_bits(payload, index, exists, size, BLOCK: tl.constexpr, WORDS: tl.constexpr) -> tl.tensor:
    """Return this program's bits of a payload of `size` bytes as (BLOCK,) int32."""
    if WORDS:
        place = tl.program_id(0).to(tl.int64) * (BLOCK // 32) + tl.arange(0, BLOCK // 32)
        whole = place < size.to(tl.int64) // 4
        words = tl.load(word_pointer(payload) + place, mask=whole, other=0)
        if tl.program_id(0) == tl.num_programs(0) - 1:
            byte = 4 * place[:, None] + tl.arange(0, 4)[None, :]
            real = (whole == 0)[:, None] & (byte < size.to(tl.int64))
            found = tl.load(payload + byte, mask=real, other=0).to(tl.int32)
            words |= tl.sum(found << (8 * tl.arange(0, 4))[None, :], axis=1)
        return unpack_words(words, 1)
    else:
        return unpack_at(payload, 0, index, exists, 1)


@triton.jit(do_not_specialize=["count", "size", "key"])
def _encode(
    x, largest, payload, count, size, key, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr
) -> None:
    """Write the signs, followed by zeros for the two flags, and find the largest magnitude."""
    index, exists = _places(count, BLOCK, ALIGNED)
    bits = tl.load(x + index, mask=exists, other=0.0).to(tl.int32, bitcast=True)
    tl.atomic_max(largest, tl.max(bits & MAGNITUDE, axis=0), sem="relaxed")
    write_bits(payload, tl.where(exists, _signs(bits, index, exists, key, 1), 0), size, BLOCK, WORDS)


@triton.jit(do_not_specialize=["count", "size", "key", "beta", "rest"])
def _encode_momentum(
    momentum,
    x,
    largest,
    payload,
    count,
    size,
    key,
    beta,
    rest,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
    WORDS: tl.constexpr,
) -> None:
    """Compute momentum = beta * momentum + rest * x, whose signs are written as by `_encode`; the factors are bits of
    float64.
    """
    index, exists = _places(count, BLOCK, ALIGNED)
    kept = beta.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    added = rest.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    old = tl.load(momentum + index, mask=exists, other=0.0)
    new = old * kept + tl.load(x + index, mask=exists, other=0.0) * added
    tl.store(momentum + index, new, mask=exists)
    bits = tl.where(exists, new, 0.0).to(tl.int32, bitcast=True)
    tl.atomic_max(largest, tl.max(bits & MAGNITUDE, axis=0), sem="relaxed")
    write_bits(payload, tl.where(exists, _signs(bits, index, exists, key, 1), 0), size, BLOCK, WORDS)


@triton.jit(do_not_specialize=["count", "size"])
def _drop_signs(largest, payload, count, size, BLOCK: tl.constexpr, LOOPS: tl.constexpr) -> None:
    """If all elements are zero, or not all are finite, replace the signs by zeros and raise the flag behind them."""
    most = tl.load(largest)
    none = (most == 0).to(tl.int32)
    bad = (most >= INFINITY).to(tl.int32)
    count = count.to(tl.int64)
    if none + bad > 0:
        byte = tl.program_id(0).to(tl.int64) * (BLOCK * LOOPS) + tl.arange(0, BLOCK)
        for _ in range(LOOPS):
            flags = tl.where(byte == count // 8, none << (count % 8).to(tl.int32), 0)
            flags |= tl.where(byte == (count + 1) // 8, bad << ((count + 1) % 8).to(tl.int32), 0)
            tl.store(payload + byte, flags.to(tl.uint8), mask=byte < size)
            byte += BLOCK


@triton.jit(do_not_specialize=["count", "size", "key", "fair"])
def _encode_scaled(
    x, scale, payload, count, size, key, fair, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr
) -> None:
    """Write the scale, given as bits, and the signs; no signs if the scale is zero or NaN."""
    index, exists = _places(count, BLOCK, ALIGNED)
    mean = tl.load(scale)
    if tl.program_id(0) == 0:
        first = tl.arange(0, 2).to(tl.int64)
        store_words(payload, first, tl.zeros((2,), tl.int32) + mean, first == 0)
    bits = tl.load(x + index, mask=exists, other=0.0).to(tl.int32, bitcast=True)
    signs = tl.where((mean == 0) | (mean >= INFINITY), 0, _signs(bits, index, exists, key, fair))
    write_bits(payload + 4, tl.where(exists, signs, 0), size - 4, BLOCK, WORDS)


def _sizes(x: torch.Tensor, payload: torch.Tensor) -> dict[str, Any]:
    return {"BLOCK": _BLOCK, "ALIGNED": len(x) % 16 == 0, "WORDS": is_aligned(payload)}


def _start(x: torch.Tensor, key: int, payload: torch.Tensor, kernel: Any, *tensors: torch.Tensor, factors: Any) -> None:
    largest = torch.zeros(1, dtype=torch.int32, device=x.device)
    numbers = len(x), len(payload), wrap_to_int64(key), *factors
    launch(kernel, -(-(len(x) + 2) // _BLOCK), *tensors, largest, payload, *numbers, **_sizes(x, payload))
    launch(_drop_signs, -(-len(payload) // _SWEEP), largest, payload, *numbers[:2], BLOCK=1024, LOOPS=_SWEEP // 1024)


def encode(x: torch.Tensor, key: int, payload: torch.Tensor) -> None:
    _start(x, key, payload, _encode, x, factors=())


def encode_momentum(momentum: torch.Tensor, x: torch.Tensor, beta: float, key: int, payload: torch.Tensor) -> None:
    factors = float64_bits(beta), float64_bits(1.0 - beta)
    _start(x, key, payload, _encode_momentum, momentum, x, factors=factors)


def encode_scaled(x: torch.Tensor, key: int, euclidean: bool, fair: bool, payload: torch.Tensor) -> None:
    scale = mean_size(x, euclidean)
    programs = max(1, -(-len(x) // _BLOCK))
    numbers = len(x), len(payload), wrap_to_int64(key), int(fair)
    launch(_encode_scaled, programs, x, scale, payload, *numbers, **_sizes(x, payload))


@triton.jit(do_not_specialize=["count", "size", "weight"])
def _decode_add(
    payload, out, wrong, count, size, weight, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr
) -> None:
    """Add weight * sign to `out`: zeros if the flag for zeros is set, NaN if that for NaN or Inf is set.

    Set `wrong` if no encoder can have written the bits after the signs.
    """
    index, exists = _places(count, BLOCK, ALIGNED)
    place = tl.arange(0, 16)
    behind = count.to(tl.int64) + place
    last = unpack_at(payload, 0, behind, behind < 8 * size.to(tl.int64), 1)
    flags = tl.sum(last << place, axis=0)
    factor = weight.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    factor = tl.where(flags == 2, float("nan"), factor)
    sign = _read_bits(payload, index, exists, size, BLOCK, WORDS)
    old = tl.load(out + index, mask=exists, other=0.0)
    if flags != 1:
        tl.store(out + index, old + (1 - 2 * sign).to(tl.float32) * factor, mask=exists)
    tl.store(wrong, 1, mask=flags > 2)


@triton.jit(do_not_specialize=["count", "size", "weight"])
def _decode_add_scaled(
    payload, out, wrong, count, size, weight, BLOCK: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr
) -> None:
    index, exists = _places(count, BLOCK, ALIGNED)
    word = tl.zeros((1,), tl.int64)
    scale = load_words(payload, word, word == 0)
    sign = _read_bits(payload + 4, index, exists, size - 4, BLOCK, WORDS)
    add_to(out, index, exists, factor_of(scale, weight) * (1 - 2 * sign).to(tl.float32))
    bad = ((scale < 0) | (scale >= INFINITY)) & (scale != NAN)
    tl.store(wrong, 1, mask=tl.max(bad.to(tl.int32), axis=0) > 0)


def _add(kernel: Any, payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    wrong = flags.make(out.device)
    numbers = len(out), len(payload), float64_bits(weight)
    launch(kernel, max(1, -(-len(out) // _BLOCK)), payload, out, wrong, *numbers, **_sizes(out, payload))
    return not flags.is_refused(wrong)


def decode_add(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    return _add(_decode_add, payload, weight, out)


def decode_add_scaled(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    return _add(_decode_add_scaled, payload, weight, out)
