"""`kernels.qsgd` in plain torch."""

from __future__ import annotations

import math

import torch

from compressors.kernels.reference.packing import pack, unpack
from compressors.kernels.reference.streams import draws


def encode(x: torch.Tensor, key: int, levels: int, bucket: int, euclidean: bool) -> torch.Tensor:
    """The payload of `x`, (n,) float32, as `QSGD` documents it."""
    parts = x.split(bucket) if len(x) else ()
    norms = torch.tensor([_norm(part, euclidean) for part in parts], dtype=torch.float32)
    width = math.ceil(math.log2(2 * levels + 1))
    codes = [
        pack(_round(part, float(norm), levels, draws(key, number, len(part))), width)
        for number, (part, norm) in enumerate(zip(parts, norms, strict=True))
    ]
    return torch.cat([norms.view(torch.uint8), *codes])


def _norm(part: torch.Tensor, euclidean: bool) -> float:
    if not part.isfinite().all():
        return math.nan
    if not euclidean:
        return float(part.abs().max())
    squares = torch.nn.functional.pad(part.double().square(), (0, -len(part) % 8)).view(-1, 8)
    sums = torch.zeros(8, dtype=torch.float64)
    for row in squares:  # one after the other: the order of the additions is part of the definition
        sums += row
    s = sums.tolist()
    total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    return min(math.sqrt(total), torch.finfo(torch.float32).max)


def _round(part: torch.Tensor, norm: float, levels: int, random: torch.Tensor) -> torch.Tensor:
    if math.isnan(norm) or norm == 0.0:
        return torch.full((len(part),), levels)
    exact = part.abs() / torch.tensor(norm, dtype=torch.float32) * levels
    level = exact.long()
    up = (random >> 1) < ((exact - level) * 2.0**31).long()
    return levels + torch.where(part < 0, -1, 1) * (level + up)


def decode_add(payload: torch.Tensor, levels: int, bucket: int, weight: float, out: torch.Tensor) -> None:
    """out += weight * Q(x), for `out` (n,) float32."""
    width = math.ceil(math.log2(2 * levels + 1))
    parts = out.split(bucket) if len(out) else ()
    norms = payload[: 4 * len(parts)].clone().view(torch.float32)
    position = 4 * len(parts)
    for part, norm in zip(parts, norms, strict=True):
        ahead = position + math.ceil(len(part) * width / 8)
        steps = unpack(payload[position:ahead], len(part), width) - levels
        part += (norm.double() * weight).float() * (steps.float() / levels)
        position = ahead
