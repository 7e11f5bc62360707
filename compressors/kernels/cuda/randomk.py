"""Random subsets on a GPU: a kernel draws numbers, and torch sorts them; `reference.randomk` says what is computed."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch, wrap_to_int64
from compressors.kernels.cuda.primitives.streams import draw, stream_bits
from compressors.kernels.cuda.selection import is_finite
from compressors.kernels.reference.randomk import choose_first

CHUNK = 1024


@triton.jit(do_not_specialize=["key", "n"])
def _draw_numbers(numbers, key, n, LARGE: tl.constexpr, CHUNK: tl.constexpr) -> None:
    """Write one chunk of random numbers from [0, n)."""
    chunk = tl.program_id(0).to(tl.uint64)
    place = tl.arange(0, CHUNK)
    high = draw(stream_bits(key, 2 * chunk), place.to(tl.uint32)).to(tl.int64)
    low = draw(stream_bits(key, 2 * chunk + 1), place.to(tl.uint32)).to(tl.int64)
    if LARGE:
        uniform = ((high << 21) | (low >> 11)).to(tl.float64) * 1.1102230246251565e-16  # 2^-53
        number = tl.minimum((uniform * n.to(tl.float64)).to(tl.int64), n - 1)
    else:
        number = (high * n + ((low * n) >> 32)) >> 32
    tl.store(numbers + tl.program_id(0).to(tl.int64) * CHUNK + place, number)


def _numbers(key: int, n: int, chunks: int, device: torch.device) -> torch.Tensor:
    numbers = torch.empty(chunks * CHUNK, dtype=torch.int64, device=device)
    launch(_draw_numbers, chunks, numbers, wrap_to_int64(key), n, LARGE=n >= 2**31, CHUNK=CHUNK)
    return numbers


def subset(key: int, n: int, k: int, device: torch.device) -> torch.Tensor:
    return choose_first(functools.partial(_numbers, key, n), n, k, device)


def take(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> bool:
    torch.index_select(x, 0, indices, out=values)
    return is_finite(x)
