"""Natural compression in plain torch; `compressors.quantisation.dithering.NaturalCompression` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.scales import INFINITY, LARGEST, MAGNITUDE, NAN, are_scales, bucket_draws

_FRACTION = 0x007FFFFF


def encode(x: torch.Tensor, key: int, bucket: int, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    for numbers, part, head, codes in sections(payload, x, bucket, 4, 8):
        scale = _next_power((part.view(torch.int32) & MAGNITUDE).amax(1))
        write_floats(scale, head)
        divisor = torch.where(scale > 0, scale, 1.0)[:, None]
        relative = (part.abs() / divisor).view(torch.int32)
        random = bucket_draws(key, numbers, part.shape[1], bucket)
        rounded = (relative.long() + (random >> 9)) >> 23 | torch.where(part.signbit(), 0x80, 0)
        codes.copy_(torch.where(scale.isnan()[:, None], 0, rounded))


def _next_power(bits: torch.Tensor) -> torch.Tensor:
    """Return, as bits, the smallest power of two (from 2^-126 on) that is at least this magnitude.

    2^128 is replaced by the largest float32.
    """
    power = ((bits.long() + _FRACTION) & INFINITY).int().view(torch.float32).clamp(max=LARGEST)
    nan = torch.tensor(NAN, dtype=torch.int32, device=bits.device).view(torch.float32)
    return torch.where(bits >= INFINITY, nan, power)


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    for _, part, head, codes in sections(payload, out, bucket, 4, 8):
        scale = read_floats(head)
        powers = scale.view(torch.int32) & _FRACTION == 0
        if not are_scales(scale) or not (powers | (scale == LARGEST) | scale.isnan()).all():
            return False
        wide = codes.int()
        value = ((wide & 0x7F) << 23 | (wide & 0x80) << 24).view(torch.float32)
        part += (scale.double() * weight).float()[:, None] * value
    return True
