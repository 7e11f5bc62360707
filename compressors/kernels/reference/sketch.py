"""Quantile buckets in plain torch; `compressors.quantisation.quantile_sketch.QuantileSketch` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quantiles import CELLS, Cut, buckets
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.scales import INFINITY, MAGNITUDE, NAN


def encode(x: torch.Tensor, number: int, payload: torch.Tensor, cut: Cut = buckets) -> None:
    """Write the payload of `x`, (n,) float32, with `number` buckets from `cut`, into `payload` of exactly the right
    length."""
    if not number:
        return
    bits = x.view(torch.int32).long() & 0xFFFFFFFF
    cells = bits >> 16
    counts = torch.zeros(CELLS, dtype=torch.int64, device=x.device)
    lows = torch.zeros_like(counts)
    counts.index_add_(0, cells, torch.ones_like(cells))
    lows.index_add_(0, cells, bits & 0xFFFF)
    # The small rest is done on the processor, where sums of float64 have one order.
    table, means = cut(counts.cpu().numpy(), lows.cpu().numpy(), number)
    write_floats(torch.from_numpy(means).to(x.device), payload[: 4 * number])
    codes = torch.from_numpy(table).to(x.device)[cells]
    payload[4 * number :] = pack(codes, (number - 1).bit_length())


def decode_add(payload: torch.Tensor, number: int, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    if not number:
        return True
    means = read_floats(payload[: 4 * number])
    bits = means.view(torch.int32)
    codes = unpack(payload[4 * number :], len(out), (number - 1).bit_length())
    if (((bits & MAGNITUDE) >= INFINITY) & (bits != NAN)).any() or (codes >= number).any():
        return False
    out += (means.double() * weight).float()[codes]
    return True
