"""`kernels.packing` in plain torch."""

from __future__ import annotations

import torch


def pack(codes: torch.Tensor, width: int) -> torch.Tensor:
    """(n,) integers below 2^width -> (ceil(n * width / 8),) uint8, least significant bit first."""
    bits = (codes.long()[:, None] >> torch.arange(width)) & 1
    padded = torch.nn.functional.pad(bits.reshape(-1), (0, -bits.numel() % 8))
    return (padded.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)


def unpack(payload: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """The inverse of `pack`: (count,) int64."""
    bits = (payload.long()[:, None] >> torch.arange(8)) & 1
    return (bits.reshape(-1)[: count * width].view(count, width) << torch.arange(width)).sum(1)
