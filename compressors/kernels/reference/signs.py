"""Signs in plain torch; `compressors.quantisation.signs` documents the payloads."""

from __future__ import annotations

import math

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import INFINITY, MAGNITUDE, are_scales
from compressors.kernels.reference.sums import total


def encode(x: torch.Tensor, key: int, payload: torch.Tensor) -> None:
    """Write the signs of `x`, (n,) float32, and two flags (all zero; not finite) into `payload` of ceil((n + 2) / 8)
    bytes.
    """
    none = ~_magnitudes(x).any()
    bad = (_magnitudes(x) >= INFINITY).any()
    signs = torch.where(none | bad, 0, _signs(x, key))
    payload.copy_(pack(torch.cat([signs, torch.stack([none, bad]).long()]), 1))


def encode_momentum(momentum: torch.Tensor, x: torch.Tensor, beta: float, key: int, payload: torch.Tensor) -> None:
    """Compute momentum = beta * momentum + (1 - beta) * x, in place; write its signs and flags as `encode` does."""
    momentum.mul_(beta).add_(x * (1.0 - beta))
    encode(momentum, key, payload)


def encode_scaled(x: torch.Tensor, key: int, euclidean: bool, fair: bool, payload: torch.Tensor) -> None:
    """Write the scale of `x`, (n,) float32, and its signs into `payload` of 4 + ceil(n / 8) bytes.

    The scale is the mean magnitude, or if `euclidean` the root mean square. Zeros have random signs if `fair`, else
    plus.
    """
    wide = x.double()
    mean = divide(total(wide.square() if euclidean else wide.abs()), max(1, len(x)))
    bad = (_magnitudes(x) >= INFINITY).any()
    scale = torch.where(bad, math.nan, (mean.sqrt() if euclidean else mean).float())
    write_floats(scale.view(1), payload[:4])
    signs = _signs(x, key) if fair else torch.where(_magnitudes(x) == 0, 0, x.signbit().long())
    payload[4:] = pack(torch.where(bad | (scale.view(torch.int32) == 0), 0, signs), 1)


def _magnitudes(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32) & MAGNITUDE


def _signs(x: torch.Tensor, key: int) -> torch.Tensor:
    """Return the signs, (n,) int64, 1 for minus; if element i is zero, bit i mod 32 of draw i // 32 of stream 0."""
    number = torch.arange(len(x), device=x.device)
    coins = draws(key, torch.zeros(1, dtype=torch.int64, device=x.device), -(-len(x) // 32))[0]
    return torch.where(_magnitudes(x) == 0, (coins[number >> 5] >> (number & 31)) & 1, x.signbit().long())


def decode_add(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the bits after the signs.
    """
    bits = unpack(payload, 8 * len(payload), 1)
    none, bad, *rest = (bool(bit) for bit in bits[len(out) :])
    if any(rest) or (none and bad):
        return False
    if bad:
        out.fill_(math.nan)
    elif not none:
        out += (1 - 2 * bits[: len(out)]).float() * weight
    return True


def decode_add_scaled(payload: torch.Tensor, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode_scaled` cannot have
    written the scale."""
    scale = read_floats(payload[:4])
    if not are_scales(scale):
        return False
    out += (scale.double() * weight).float() * (1 - 2 * unpack(payload[4:], len(out), 1)).float()
    return True
