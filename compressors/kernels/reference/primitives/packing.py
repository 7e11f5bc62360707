"""`kernels.cpu.primitives.packing` in plain torch."""

from __future__ import annotations

import torch


def pack(codes: torch.Tensor, width: int) -> torch.Tensor:
    """Pack (..., n) integers below 2^width into (..., ceil(n * width / 8)) uint8, least significant bit first."""
    bits = (codes.long()[..., None] >> torch.arange(width, device=codes.device)) & 1
    bits = bits.flatten(-2)
    bits = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 8)).unflatten(-1, (-1, 8))
    return (bits << torch.arange(8, device=codes.device)).sum(-1).to(torch.uint8)


def unpack(payload: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """Unpack the codes that `pack` has packed: (..., ceil(n * width / 8)) uint8 -> (..., count) int64."""
    bits = ((payload.long()[..., None] >> torch.arange(8, device=payload.device)) & 1).flatten(-2)
    bits = bits[..., : count * width].unflatten(-1, (count, width))
    return (bits << torch.arange(width, device=payload.device)).sum(-1)
