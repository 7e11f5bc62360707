"""TernGrad in plain torch; `compressors.quantisation.qsgd_terngrad_onebit.TernGrad` documents the payload."""

from __future__ import annotations

import math

import torch

from compressors.kernels.buffers import write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference import qsgd
from compressors.kernels.reference.primitives.buckets import rows, sections
from compressors.kernels.reference.primitives.packing import pack
from compressors.kernels.reference.scales import bucket_draws, norms, round_stochastically, sums

_ROUNDING = 2.0**-40


def scales(x: torch.Tensor, bucket: int, clip: float) -> torch.Tensor:
    """Return the scale of every bucket of `x` (n,): its largest magnitude after clipping; NaN if it holds NaN or Inf.

    Elements are clipped to `clip` standard deviations, unless `clip` is 0 or all elements are equal.
    """
    found = [x.new_zeros(0)]
    for _, part in rows(x, bucket):
        scale = norms(part, False)
        if clip > 0:
            mean = divide(sums(part), part.shape[1])
            power = divide(sums(part.double().square()), part.shape[1])
            variance = power - mean * mean
            limit = (clip * variance.clamp(min=0).sqrt()).float()
            limit = torch.where(variance <= power * _ROUNDING, math.inf, limit)
            scale = torch.where(scale.isnan() | (scale < limit), scale, limit)
        found.append(scale)
    return torch.cat(found)


def encode(
    x: torch.Tensor, key: int, bucket: int, own: torch.Tensor, scales: torch.Tensor, payload: torch.Tensor
) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length.

    Elements are clipped to `own`; the `scales` that are sent are not smaller.
    """
    write_floats(scales, payload[: 4 * len(scales)])
    for numbers, part, _, codes in sections(payload, x, bucket, 4, 2):
        scale, limit = scales[numbers, None], own[numbers, None]
        exact = torch.minimum(part.abs(), limit) / torch.where(scale > 0, scale, 1.0)
        exact = torch.where(scale.isnan(), 0.0, exact)
        level = round_stochastically(exact, bucket_draws(key, numbers, part.shape[1], bucket))
        codes.copy_(pack(1 + torch.where(part.signbit(), -level, level), 2))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    return qsgd.decode_add(payload, 1, 2, bucket, weight, out)
