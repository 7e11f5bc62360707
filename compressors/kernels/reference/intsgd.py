"""IntSGD in plain torch; `compressors.quantisation.intsgd.IntSGD` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.reference.primitives.buckets import rows
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import round_stochastically

STREAM = 1 << 16
"""Elements that share one stream of random numbers."""


def encode(
    x: torch.Tensor, key: int, power: float, factor: float, limit: int, bits: int, payload: torch.Tensor
) -> bool:
    """Write Int(power * factor * x), clipped to +-limit, of `x`, (n,) float32, into `payload` as n integers of `bits`
    bits.

    `power` is a power of two; `power`, `factor` and `limit` are float32 values. Return False if `x` holds NaN or Inf;
    `payload` is then invalid.
    """
    if not x.isfinite().all():
        return False
    for numbers, part in rows(x, STREAM):
        exact = (part.abs() * power * factor).clamp(max=float(limit))
        levels = torch.where(part.signbit(), -1, 1) * round_stochastically(exact, draws(key, numbers, part.shape[1]))
        start = STREAM * int(numbers[0]) * (bits // 8)
        levels = levels.to(_dtype(bits)).flatten().view(torch.uint8)
        payload[start : start + levels.numel()] = levels
    return True


def decode_add(payload: torch.Tensor, factor: float, bits: int, out: torch.Tensor) -> None:
    """Compute out += factor * the integers in `payload`."""
    if payload.data_ptr() % 4 or payload.storage_offset() % 4:
        payload = payload.clone()
    out += (payload.view(_dtype(bits)).double() * factor).float()


def _dtype(bits: int) -> torch.dtype:
    return torch.int8 if bits == 8 else torch.int32
