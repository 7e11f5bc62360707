"""Draw elements of a tensor at random in Triton; `reference.sampling` says which."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors.kernels.cuda.primitives.launch import launch, wrap_to_int64
from compressors.kernels.cuda.primitives.streams import draw, stream_bits

_BLOCK = 512


@triton.jit(do_not_specialize=["size", "key", "count"])
def _sample(x, taken, size, key, count, BLOCK: tl.constexpr) -> None:
    """Fill `taken` (count,) with randomly drawn elements of `x`, which has `size` elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    bits = stream_bits(key, tl.zeros((BLOCK,), tl.uint64))
    first = draw(bits, (2 * place).to(tl.uint32)).to(tl.int64)
    second = draw(bits, (2 * place + 1).to(tl.uint32)).to(tl.int64)
    index = ((first << 31) | (second >> 1)) % size.to(tl.int64)
    tl.store(taken + place, tl.load(x + index, mask=mask, other=0.0), mask=mask)


def sample(x: torch.Tensor, key: int, count: int) -> torch.Tensor:
    taken = torch.empty(count, dtype=torch.float32, device=x.device)
    launch(_sample, -(-count // _BLOCK), x, taken, len(x), wrap_to_int64(key), count, BLOCK=_BLOCK)
    return taken
