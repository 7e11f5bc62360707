"""IntSGD in Triton; `reference.intsgd` says what is computed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.cuda.primitives.launch import float64_bits, launch, wrap_to_int64
from compressors.kernels.cuda.primitives.packing import load_words, store_words
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.scales import INFINITY, MAGNITUDE, add_to

_STREAM = tl.constexpr(1 << 16)
_BLOCK = 1024


@triton.jit(do_not_specialize=["count", "key", "power", "factor", "limit"])
def _encode(x, payload, wrong, count, key, power, factor, limit, BITS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Write integers of BITS bits; set `wrong` if an element is NaN or Inf. The factors are bits of float64."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = index < count
    value = tl.load(x + index, mask=exists, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    bad = (bits & MAGNITUDE) >= INFINITY
    tl.store(wrong, 1, mask=tl.max(bad.to(tl.int32), axis=0) > 0)
    exact = tl.abs(value) * power.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    exact *= factor.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)
    exact = tl.where(bad, 0.0, tl.minimum(exact, limit.to(tl.int64).to(tl.float64, bitcast=True).to(tl.float32)))
    level = exact.to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * BLOCK // _STREAM
    random = draw(stream_bits(key, first.to(tl.uint64)), (index % _STREAM).to(tl.uint32))
    threshold = ((exact - level.to(tl.float32)) * 2147483648.0).to(tl.int32)
    level += ((random >> 1).to(tl.int32) < threshold).to(tl.int64)
    level = tl.where(bits < 0, -level, level)
    if BITS == 8:
        tl.store(payload + index, level.to(tl.int32).to(tl.uint8), mask=exists)
    else:
        store_words(payload, index, level.to(tl.int32), exists)


@triton.jit(do_not_specialize=["count", "factor"])
def _decode_add(payload, out, count, factor, BITS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = index < count
    if BITS == 8:
        level = (tl.load(payload + index, mask=exists, other=0).to(tl.int32) << 24) >> 24
    else:
        level = load_words(payload, index, exists)
    value = level.to(tl.float64) * factor.to(tl.int64).to(tl.float64, bitcast=True)
    add_to(out, index, exists, value.to(tl.float32))


def encode(
    x: torch.Tensor, key: int, power: float, factor: float, limit: int, bits: int, payload: torch.Tensor
) -> bool:
    wrong = flags.make(x.device)
    factors = float64_bits(power), float64_bits(factor), float64_bits(float(limit))
    launch(
        _encode, -(-len(x) // _BLOCK), x, payload, wrong, len(x), wrap_to_int64(key), *factors, BITS=bits, BLOCK=_BLOCK
    )  # fmt: skip
    return not flags.is_raised(wrong)


def decode_add(payload: torch.Tensor, factor: float, bits: int, out: torch.Tensor) -> None:
    launch(
        _decode_add, -(-len(out) // _BLOCK), payload, out, len(out), float64_bits(factor), BITS=bits, BLOCK=_BLOCK
    )  # fmt: skip
