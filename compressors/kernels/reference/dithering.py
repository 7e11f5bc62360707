"""Dithering to powers of two in plain torch; `compressors.quantisation.dithering` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.scales import are_scales, bucket_draws, norms


def encode(
    x: torch.Tensor, key: int, steps: int, width: int, bucket: int, euclidean: bool, payload: torch.Tensor
) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length.

    The levels of |x| / norm are 0 and `steps` powers of two, the largest of them 1.
    """
    for numbers, part, head, codes in sections(payload, x, bucket, 4, width):
        norm = norms(part, euclidean)
        write_floats(norm, head)
        powers = _round(part, norm, steps, bucket_draws(key, numbers, part.shape[1], bucket))
        codes.copy_(pack(steps + torch.where(part.signbit(), -powers, powers), width))


def _round(part: torch.Tensor, norm: torch.Tensor, steps: int, random: torch.Tensor) -> torch.Tensor:
    """Return the number of each element's power, 1 to `steps`, or 0 for zero."""
    divisor = torch.where(norm > 0, norm, 1.0)[:, None]
    relative = part.abs() / divisor * 2.0 ** (steps - 1)
    relative = torch.where(norm.isnan()[:, None], 0.0, relative)
    power = ((relative.view(torch.int32).long() + (random >> 9)) >> 23) - 126
    hit = (random >> 1) < (relative.clamp(max=1.0) * 2.0**31).long()
    return torch.where(relative >= 1, power, hit.long())


def decode_add(payload: torch.Tensor, steps: int, width: int, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    for _, part, head, codes in sections(payload, out, bucket, 4, width):
        norm = read_floats(head)
        signed = unpack(codes, part.shape[1], width) - steps
        if not are_scales(norm) or (signed > steps).any():
            return False
        exponent = torch.where(signed == 0, 0, signed.abs() + 127 - steps).int()
        value = (exponent << 23).view(torch.float32)
        value = torch.where(signed < 0, -value, value)
        part += (norm.double() * weight).float()[:, None] * value
    return True
