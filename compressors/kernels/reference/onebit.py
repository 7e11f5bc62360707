"""1-bit quantisation in plain torch; `compressors.quantisation.qsgd_terngrad_onebit.OneBit` documents the payload."""

from __future__ import annotations

import math

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.scales import INFINITY, MAGNITUDE, NAN, sums


def encode(x: torch.Tensor, bucket: int, payload: torch.Tensor) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    for _, part, head, codes in sections(payload, x, bucket, 8, 1):
        count = part.signbit().sum(1)
        above = sums(torch.where(part > 0, part, 0.0))
        below = sums(torch.where(part > 0, 0.0, part))
        means = torch.stack([above / (part.shape[1] - count).clamp(min=1), below / count.clamp(min=1)], 1).float()
        bad = ~(above.isfinite() & below.isfinite())
        means = torch.where(bad[:, None], math.nan, means)
        write_floats(means, head)
        codes.copy_(pack(part.signbit(), 1))


def decode_add(payload: torch.Tensor, bucket: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    for _, part, head, codes in sections(payload, out, bucket, 8, 1):
        means = read_floats(head).view(-1, 2)
        if not _are_means(*means.view(torch.int32).unbind(1)):
            return False
        factors = (means.double() * weight).float()
        part += torch.where(unpack(codes, part.shape[1], 1) == 1, factors[:, 1:], factors[:, :1])
    return True


def _are_means(positive: torch.Tensor, negative: torch.Tensor) -> bool:
    """Tell whether these can be an encoder's means: both the one NaN, or the first at least +0, the second at most -0
    or +0.
    """
    numbers = (positive >= 0) & (positive < INFINITY) & (negative <= 0) & ((negative & MAGNITUDE) < INFINITY)
    return bool((numbers | ((positive == NAN) & (negative == NAN))).all())
