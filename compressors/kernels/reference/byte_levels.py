"""Decode bytes that stand for levels relative to the scale of their bucket, in plain torch: `fp8` and `dynamic`."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import read_floats
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.scales import are_scales


def decode_add(
    payload: torch.Tensor, levels: torch.Tensor, top: int, bucket: int, weight: float, out: torch.Tensor
) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if no encoder can have written it.

    Args:
        levels: by byte, (256,) float32.
        top: the largest code without the highest bit, which is the sign's.
    """
    for _, part, head, codes in sections(payload, out, bucket, 4, 8):
        scale = read_floats(head)
        if not are_scales(scale) or bool(((codes & 127) > top).any()):
            return False
        part += (scale.double() * weight).float()[:, None] * levels[codes.long()]
    return True
