"""Rounding to evenly spaced levels in plain torch; `compressors.quantisation.int8.Int8` documents the payload."""

from __future__ import annotations

import torch

from compressors.kernels.buffers import read_floats, write_floats
from compressors.kernels.quotients import divide
from compressors.kernels.reference.primitives.buckets import sections
from compressors.kernels.reference.primitives.packing import pack, unpack
from compressors.kernels.reference.primitives.streams import draws
from compressors.kernels.reference.scales import INFINITY, MAGNITUDE, NAN, are_scales, round_stochastically

_HUGE = 2.0**126


def encode(
    x: torch.Tensor, key: int, width: int, bucket: int, minmax: bool, stochastic: bool, payload: torch.Tensor
) -> None:
    """Write the payload of `x`, (n,) float32, into `payload`, which has exactly the right length."""
    top = _top(width, minmax)
    for numbers, part, head, codes in sections(payload, x, bucket, 8 if minmax else 4, width):
        bounds = _bounds(part, minmax)
        write_floats(bounds, head)
        bad = bounds[:, -1:].isnan()
        place = _place_between(part, bounds) if minmax else _place_symmetric(part, bounds)
        exact = torch.where(bad, 0.0, place * top)
        level = round_stochastically(exact, draws(key, numbers, part.shape[1])) if stochastic else exact.round().long()
        if not minmax:  # the sign bit: a comparison may take a denormal for zero
            level = top + torch.where(part.signbit() & ~bad, -1, 1) * level
        codes.copy_(pack(level, width))


def _top(width: int, minmax: bool) -> int:
    """Return the highest level."""
    return 2**width - 1 if minmax else 2 ** (width - 1) - 1


def _bounds(part: torch.Tensor, minmax: bool) -> torch.Tensor:
    """Return the bounds of each bucket: the smallest and the largest element, (b, 2), or the largest magnitude, (b, 1).

    Elements are compared in the order of their bits, in which -0.0 is before 0.0.
    """
    bits = part.view(torch.int32)
    magnitude = bits & MAGNITUDE
    if minmax:
        order = bits ^ ((bits >> 31) & MAGNITUDE)
        found = torch.stack([order.amin(1), order.amax(1)], 1)
        found ^= (found >> 31) & MAGNITUDE
    else:
        found = magnitude.amax(1, keepdim=True)
    return torch.where(magnitude.amax(1, keepdim=True) >= INFINITY, NAN, found).view(torch.float32)


def _place_symmetric(part: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Return |x| / m, in [0, 1], for the largest magnitude m of each bucket."""
    return part.abs() / torch.where(bounds > 0, bounds, 1.0)


def _place_between(part: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Return (x - a) / (b - a), in [0, 1], for the bounds a and b of each bucket.

    Huge numbers are halved first, since float32 could not hold their difference.
    """
    factor = torch.where(bounds.abs().amax(1, keepdim=True) >= _HUGE, 0.5, 1.0)
    start = bounds[:, :1] * factor
    length = bounds[:, 1:] * factor - start
    return (part * factor - start) / torch.where(length > 0, length, 1.0)


def decode_add(payload: torch.Tensor, width: int, bucket: int, minmax: bool, weight: float, out: torch.Tensor) -> bool:
    """Add weight * Q(x), decoded from `payload`, to `out` (n,) float32; return False if `encode` cannot have written
    the payload."""
    top = _top(width, minmax)
    for _, part, head, packed in sections(payload, out, bucket, 8 if minmax else 4, width):
        bounds = read_floats(head).view(len(part), -1)
        if not _are_valid_bounds(bounds):
            return False
        codes = unpack(packed, part.shape[1], width)
        scaled = (bounds.double() * weight).float()
        if minmax:
            high = divide(codes.float(), top)
            low = divide((top - codes).float(), top)
            part += scaled[:, :1] * low + scaled[:, 1:] * high
        elif (codes > 2 * top).any():
            return False
        else:
            part += scaled * divide((codes - top).float(), top)
    return True


def _are_valid_bounds(bounds: torch.Tensor) -> bool:
    """Tell whether an encoder can have written these bounds, (b, 1) or (b, 2)."""
    if bounds.shape[1] == 1:
        return are_scales(bounds)
    bits = bounds.view(torch.int32)
    finite = (bits & MAGNITUDE < INFINITY).all(1)
    ordered = bounds[:, 0] <= bounds[:, 1]
    return bool(((bits == NAN).all(1) | (finite & ordered)).all())
