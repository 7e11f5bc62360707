"""8-bit floating point in plain torch; `compressors.quantisation.fp8.FP8` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import write_floats
from compressors.kernels.fp8_formats import FORMATS
from compressors.kernels.reference import byte_levels
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.scales import bucket_draws, norms, round_stochastically


def encode(x: torch.Tensor, key: int, name: str, bucket: int, stochastic: bool, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    form = FORMATS[name]
    for numbers, part, head, codes in sections(payload, x, bucket, 4, 8):
        norm = norms(part, False)
        write_floats(norm, head)
        y = part.abs() / torch.where(norm > 0, norm, 1.0)[:, None]
        y = torch.where(norm.isnan()[:, None], 0.0, y) * form.largest
        bits, low = y.view(torch.int32).long(), y * form.grid
        if stochastic:
            random = bucket_draws(key, numbers, part.shape[1], bucket)
            up = (random >> (32 - form.shift)) < (bits & ((1 << form.shift) - 1))
            below = round_stochastically(low.clamp(max=256.0), random)
        else:
            half = (1 << (form.shift - 1)) - 1 + ((bits >> form.shift) & 1)
            bits, up = bits + half, torch.zeros_like(bits)
            below = low.clamp(max=256.0).round().long()
        rank = torch.where(y < form.smallest, below, (bits >> form.shift) + up - form.offset)
        codes.copy_(torch.where(part.signbit() & (rank > 0), 128 + rank, rank))


def decode_add(payload: torch.Tensor, name: str, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    it."""
    form = FORMATS[name]
    levels = torch.tensor(form.list_values(), device=out.device)
    return byte_levels.decode_add(payload, levels, form.top, bucket, weight, out)
